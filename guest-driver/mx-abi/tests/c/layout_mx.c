/* Sizes, offsets and values of the MX headers, as programs of its time were compiled with them. */
#include <mx_internals/mx__driver_interface.h>
#include <mx_internals/mx__fops.h>
#include <mx_extensions.h>
#include <mx_raw.h>
#include <myriexpress.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define AT(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #type "." #member)
#define IS(name, value) _Static_assert((unsigned)(name) == (unsigned)(value), #name)

SIZE(mx_endpoint_t, 8);
SIZE(mx_request_t, 8);
SIZE(mx_endpoint_addr_t, MX_SIZEOF_ADDR);
_Static_assert(_Alignof(mx_endpoint_addr_t) == 8, "alignment of an address");
SIZE(mx_segment_t, 16);
AT(mx_segment_t, segment_ptr, 0);
AT(mx_segment_t, segment_length, 8);
SIZE(((mx_segment_t *)0)->segment_length, 4);
SIZE(mx_param_t, 16);
AT(mx_param_t, key, 0);
AT(mx_param_t, val, 8);
AT(mx_param_t, val.context_id.bits, 8);
AT(mx_param_t, val.context_id.shift, 9);
SIZE(mx_return_t, 4);
SIZE(mx_status_code_t, 4);
SIZE(mx_param_key_t, 4);
SIZE(mx_get_info_key_t, 4);
SIZE(mx_line_speed_t, 4);
SIZE(mx_unexp_handler_action_t, 4);
SIZE(mx_endpt_handle_t, 4);
SIZE(mx_raw_endpoint_t, 8);
SIZE(mx_raw_status_t, 4);
SIZE(mx_status_t, 48);
AT(mx_status_t, code, 0);
AT(mx_status_t, source, 8);
AT(mx_status_t, match_info, 24);
AT(mx_status_t, msg_length, 32);
AT(mx_status_t, xfer_length, 36);
AT(mx_status_t, context, 40);
SIZE(mx_mapper_state_t, 36);
AT(mx_mapper_state_t, board_number, 0);
AT(mx_mapper_state_t, mapper_mac, 4);
AT(mx_mapper_state_t, iport, 10);
AT(mx_mapper_state_t, map_version, 12);
AT(mx_mapper_state_t, num_hosts, 16);
AT(mx_mapper_state_t, network_configured, 20);
AT(mx_mapper_state_t, routes_valid, 24);
AT(mx_mapper_state_t, level, 28);
AT(mx_mapper_state_t, flags, 32);

IS(MX_API, 0x301);
IS(MX_ANY_NIC, 0xffffffff);
IS(MX_ANY_ENDPOINT, 0xffffffff);
IS(MX_INFINITE, 0);
IS(MX_MAX_SEGMENTS, 256);
IS(MX_CONTEXT_ID_BITS_MAX, 16);
IS(MX_MAX_HOSTNAME_LEN, 80);
IS(MX_MAX_STR_LEN, 128);
_Static_assert(MX_MATCH_MASK_NONE == 0xffffffffffffffff, "every bit");
_Static_assert(MX_U32(0x1234567890abcdef) == 0x12345678 && MX_L32(0x1234567890abcdef) == 0x90abcdef, "halves");
IS(MX_RECV_CONTINUE, 0);
IS(MX_RECV_FINISHED, 1);
IS(MX_SPEED_2G, 0);
IS(MX_SPEED_10G, 1);
IS(MX_SPEED_OPEN_MX, 2);
IS(MX_NET_MYRI, 0);
IS(MX_NET_ETHER, 1);
IS(MX_RAW_NO_EVENT, 0);
IS(MX_RAW_SEND_COMPLETE, 1);
IS(MX_RAW_RECV_COMPLETE, 2);
IS(MX_HOST_GM, 1);
IS(MX_HOST_MXvM, 4);
IS(MX_DEAD_RECOVERABLE_SRAM_PARITY_ERROR, 10);
IS(MX_DEAD_PCI_MASTER_ABORT, 17);
IS(MX__INVALID_HANDLE, -1);
IS(MX_PARAM_ERROR_HANDLER, 0);
IS(MX_PARAM_UNEXP_QUEUE_MAX, 1);
IS(MX_PARAM_CONTEXT_ID, 2);
IS(MX_NIC_COUNT, 1);
IS(MX_COUNTERS_VALUES, 7);
IS(MX_LINE_SPEED, 16);
IS(MX_SUCCESS, 0);
IS(MX_BAD_BAD_BAD, 1);
IS(MX_FAILURE, 2);
IS(MX_ALREADY_INITIALIZED, 3);
IS(MX_NO_PERM, 7);
IS(MX_BAD_ENDPOINT, 9);
IS(MX_BAD_SEG_LIST, 10);
IS(MX_BAD_SEG_CNT, 12);
IS(MX_BAD_REQUEST, 13);
IS(MX_BAD_MATCH_MASK, 14);
IS(MX_NO_RESOURCES, 15);
IS(MX_BUSY, 20);
IS(MX_BAD_INFO_KEY, 21);
IS(MX_BAD_PARAM_VAL, 26);
IS(MX_HOST_NOT_FOUND, 28);
IS(MX_TIMEOUT, 30);
IS(MX_BAD_ENDPOINT_ID, 32);
IS(MX_CONNECTION_FAILED, 33);
IS(MX_BAD_CONNECTION_KEY, 34);
IS(MX_BAD_INFO_LENGTH, 35);
IS(MX_NIC_NOT_FOUND, 36);
IS(MX_BAD_LIB_VERSION, 38);
IS(MX_CANCEL_NOT_SUPPORTED, 40);
IS(MX_CLOSE_IN_HANDLER, 41);
IS(MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK, 42);
IS(MX_NOT_SUPPORTED_WITH_CONTEXT_ID, 43);
IS(MX_STATUS_SUCCESS, 0);
IS(MX_STATUS_PENDING, 1);
IS(MX_STATUS_TIMEOUT, 4);
IS(MX_STATUS_TRUNCATED, 5);
IS(MX_STATUS_CANCELLED, 6);
IS(MX_STATUS_ENDPOINT_CLOSED, 8);
IS(MX_STATUS_ENDPOINT_UNREACHABLE, 9);
IS(MX_STATUS_BAD_SESSION, 10);
IS(MX_STATUS_BAD_KEY, 11);
IS(MX_STATUS_BAD_ENDPOINT, 12);
IS(MX_STATUS_BAD_RDMAWIN, 13);
IS(MX_STATUS_ABORTED, 14);
IS(MX_STATUS_NO_RESOURCES, 16);

#if !MX_HAS_NET_TYPE || MX_HAS_ICONNECT_V2 != 1 || MX_RAW_POLL_SUPPORTED != 1 || MX_SET_ROUTE_TAKES_MAGID != 1 || \
    MX_HAS_RAW_LINE_SPEED != 1 || MX_HAS_RAW_SET_NIC_REPLY_INFO != 1
#error "a feature macro is missing"
#endif

int main(void)
{
    return 0;
}
