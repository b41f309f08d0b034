/* Sizes, offsets and values of the Open-MX header, and of the one that turns MX names into Open-MX calls. */
#include <open-mx.h>
#include <translate/mx_extensions.h>

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define AT(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #type "." #member)
#define IS(name, value) _Static_assert((unsigned)(name) == (unsigned)(value), #name)

SIZE(omx_endpoint_t, 8);
SIZE(omx_request_t, 8);
SIZE(omx_endpoint_addr_t, OMX_SIZEOF_ADDR);
SIZE(omx_seg_t, 16);
AT(omx_seg_t, ptr, 0);
AT(omx_seg_t, len, 8);
SIZE(omx_endpoint_param_t, 16);
AT(omx_endpoint_param_t, key, 0);
AT(omx_endpoint_param_t, val, 8);
AT(omx_endpoint_param_t, val.context_id.shift, 9);
SIZE(omx_return_t, 4);
SIZE(omx_info_key_t, 4);
SIZE(omx_unexp_handler_action_t, 4);
SIZE(omx_status_t, 48);
AT(omx_status_t, code, 0);
AT(omx_status_t, addr, 8);
AT(omx_status_t, match_info, 24);
AT(omx_status_t, msg_length, 32);
AT(omx_status_t, xfer_length, 36);
AT(omx_status_t, context, 40);

IS(OMX_API, 0x301);
IS(OMX_ANY_NIC, 0xffffffff);
IS(OMX_ANY_ENDPOINT, 0xffffffff);
IS(OMX_TIMEOUT_INFINITE, 0xffffffff);
IS(OMX_MAX_SEGMENTS, 256);
IS(OMX_ENDPOINT_CONTEXT_ID_BITS_MAX, 16);
IS(OMX_HOSTNAMELEN_MAX, 80);
IS(OMX_BOARD_ADDR_STRLEN, 18);
IS(OMX_ENDPOINT_PARAM_ERROR_HANDLER, 0);
IS(OMX_ENDPOINT_PARAM_UNEXP_QUEUE_MAX, 1);
IS(OMX_ENDPOINT_PARAM_CONTEXT_ID, 2);
IS(OMX_UNEXP_HANDLER_RECV_CONTINUE, 0);
IS(OMX_UNEXP_HANDLER_RECV_FINISHED, 1);
IS(OMX_INFO_BOARD_MAX, 0);
IS(OMX_INFO_BOARD_IDS, 3);
IS(OMX_INFO_COUNTER_LABEL, 9);
IS(OMX_SUCCESS, 0);
IS(OMX_BAD_ERROR, 1);
IS(OMX_ALREADY_INITIALIZED, 3);
IS(OMX_NO_DEVICE_FILE, 5);
IS(OMX_ACCESS_DENIED, 7);
IS(OMX_BOARD_NOT_FOUND, 8);
IS(OMX_SEGMENTS_BAD_COUNT, 12);
IS(OMX_BAD_INFO_ADDRESS, 22);
IS(OMX_ENDPOINT_PARAMS_BAD_LIST, 24);
IS(OMX_PEER_NOT_FOUND, 28);
IS(OMX_REMOTE_ENDPOINT_BAD_ID, 32);
IS(OMX_REMOTE_ENDPOINT_CLOSED, 33);
IS(OMX_NIC_ID_NOT_FOUND, 36);
IS(OMX_BAD_LIB_ABI, 38);
IS(OMX_BAD_MATCHING_FOR_CONTEXT_ID_MASK, 42);
IS(OMX_CANCELLED, 90);
IS(OMX_REMOTE_RDMA_WINDOW_BAD_ID, 91);
IS(OMX_REMOTE_ENDPOINT_UNREACHABLE, 92);
IS(OMX_REMOTE_ENDPOINT_BAD_SESSION, 93);
IS(OMX_MESSAGE_ABORTED, 94);
IS(OMX_MESSAGE_TRUNCATED, 95);
IS(OMX_NOT_SUPPORTED_IN_HANDLER, 96);
IS(OMX_NO_SYSTEM_RESOURCES, 97);
IS(OMX_NOT_IMPLEMENTED, 99);
IS(OMX_RETURN_CODE_MAX, 100);

/* The translating headers. */
SIZE(mx_status_t, 48);
AT(mx_status_t, source, 8);
AT(mx_segment_t, segment_length, 8);
IS(MX_INFINITE, 0xffffffff);
IS(MX_CONTEXT_ID_BITS_MAX, 16);
IS(MX_FAILURE, 102);
IS(MX_BAD_SEG_LIST, 110);
IS(MX_BAD_SEG_MEM, 111);
IS(MX_BAD_ADDR_LIST, 116);
IS(MX_NOT_COMPLETED, 119);
IS(MX_BAD_NIC, 123);
IS(MX_BAD_HOSTNAME_ARGS, 127);
IS(MX_REQUEST_PENDING, 129);
IS(MX_NO_MATCH, 131);
IS(MX_NIC_DEAD, 139);
IS(MX_NOT_SUPPORTED_WITH_CONTEXT_ID, 143);
IS(MX_CANCEL_NOT_SUPPORTED, 13);
IS(MX_CLOSE_IN_HANDLER, 96);
IS(MX_STATUS_TRUNCATED, 95);
IS(MX_STATUS_CANCELLED, 90);

int main(void)
{
    return 0;
}
