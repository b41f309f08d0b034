/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The MX interface as macros over Open-MX's, for programs that are compiled with these headers: names of MX, calls and
 * values of Open-MX. Link with -lopen-mx. */
#ifndef WEFT_TRANSLATE_MYRIEXPRESS_H
#define WEFT_TRANSLATE_MYRIEXPRESS_H

/* With all that it brings. */
#include <open-mx.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MX_API 0x301

#define MX_ANY_NIC 0xffffffffU
#define MX_ANY_ENDPOINT 0xffffffffU
/* No time limit. */
#define MX_INFINITE OMX_TIMEOUT_INFINITE
#define MX_MAX_SEGMENTS 256
#define MX_CONTEXT_ID_BITS_MAX OMX_ENDPOINT_CONTEXT_ID_BITS_MAX
/* Bytes of a host name, its end included, and of a text of mx_get_info. */
#define MX_MAX_HOSTNAME_LEN 80
#define MX_MAX_STR_LEN 128
#define MX_SIZEOF_ADDR 16
/* Every bit is compared. */
#define MX_MATCH_MASK_NONE (~(uint64_t)0)
/* Halves of a 64-bit value, for printing. */
#define MX_U32(x) ((uint32_t)(((uint64_t)(x)) >> 32))
#define MX_L32(x) ((uint32_t)((uint64_t)(x) & 0xffffffffU))

/* What programs test for at compile time. */
#define MX_HAS_NET_TYPE 1
#define MX_HAS_ICONNECT_V2 1
#define MX_RAW_POLL_SUPPORTED 1
#define MX_SET_ROUTE_TAKES_MAGID 1
#define MX_HAS_RAW_LINE_SPEED 1
#define MX_HAS_RAW_SET_NIC_REPLY_INFO 1

#define MX_SUCCESS OMX_SUCCESS
#define MX_BAD_BAD_BAD OMX_BAD_ERROR
#define MX_FAILURE ((omx_return_t)102)
#define MX_ALREADY_INITIALIZED OMX_ALREADY_INITIALIZED
#define MX_NOT_INITIALIZED OMX_NOT_INITIALIZED
#define MX_NO_DEV OMX_NO_DEVICE_FILE
#define MX_NO_DRIVER OMX_NO_DRIVER
#define MX_NO_PERM OMX_ACCESS_DENIED
#define MX_BOARD_UNKNOWN OMX_BOARD_NOT_FOUND
#define MX_BAD_ENDPOINT OMX_BAD_ENDPOINT
#define MX_BAD_SEG_LIST ((omx_return_t)110)
#define MX_BAD_SEG_MEM ((omx_return_t)111)
#define MX_BAD_SEG_CNT OMX_SEGMENTS_BAD_COUNT
#define MX_BAD_REQUEST OMX_BAD_REQUEST
#define MX_BAD_MATCH_MASK OMX_BAD_MATCH_MASK
#define MX_NO_RESOURCES OMX_NO_RESOURCES
#define MX_BAD_ADDR_LIST ((omx_return_t)116)
#define MX_BAD_ADDR_COUNT ((omx_return_t)117)
#define MX_BAD_ROOT ((omx_return_t)118)
#define MX_NOT_COMPLETED ((omx_return_t)119)
#define MX_BUSY OMX_BUSY
#define MX_BAD_INFO_KEY OMX_BAD_INFO_KEY
#define MX_BAD_INFO_VAL OMX_BAD_INFO_ADDRESS
#define MX_BAD_NIC ((omx_return_t)123)
#define MX_BAD_PARAM_LIST OMX_ENDPOINT_PARAMS_BAD_LIST
#define MX_BAD_PARAM_NAME OMX_ENDPOINT_PARAM_BAD_KEY
#define MX_BAD_PARAM_VAL OMX_ENDPOINT_PARAM_BAD_VALUE
#define MX_BAD_HOSTNAME_ARGS ((omx_return_t)127)
#define MX_HOST_NOT_FOUND OMX_PEER_NOT_FOUND
#define MX_REQUEST_PENDING ((omx_return_t)129)
#define MX_TIMEOUT OMX_TIMEOUT
#define MX_NO_MATCH ((omx_return_t)131)
#define MX_BAD_ENDPOINT_ID OMX_REMOTE_ENDPOINT_BAD_ID
#define MX_CONNECTION_FAILED OMX_REMOTE_ENDPOINT_CLOSED
#define MX_BAD_CONNECTION_KEY OMX_REMOTE_ENDPOINT_BAD_CONNECTION_KEY
#define MX_BAD_INFO_LENGTH OMX_BAD_INFO_LENGTH
#define MX_NIC_NOT_FOUND OMX_NIC_ID_NOT_FOUND
#define MX_BAD_KERNEL_VERSION OMX_BAD_KERNEL_ABI
#define MX_BAD_LIB_VERSION OMX_BAD_LIB_ABI
#define MX_NIC_DEAD ((omx_return_t)139)
#define MX_CANCEL_NOT_SUPPORTED OMX_BAD_REQUEST
#define MX_CLOSE_IN_HANDLER OMX_NOT_SUPPORTED_IN_HANDLER
#define MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK OMX_BAD_MATCHING_FOR_CONTEXT_ID_MASK
#define MX_NOT_SUPPORTED_WITH_CONTEXT_ID ((omx_return_t)143)

#define MX_STATUS_SUCCESS OMX_SUCCESS
#define MX_STATUS_PENDING ((omx_return_t)201)
#define MX_STATUS_BUFFERED ((omx_return_t)202)
#define MX_STATUS_REJECTED ((omx_return_t)203)
#define MX_STATUS_TIMEOUT OMX_TIMEOUT
#define MX_STATUS_TRUNCATED OMX_MESSAGE_TRUNCATED
#define MX_STATUS_CANCELLED OMX_CANCELLED
#define MX_STATUS_ENDPOINT_UNKNOWN ((omx_return_t)207)
#define MX_STATUS_ENDPOINT_CLOSED OMX_REMOTE_ENDPOINT_CLOSED
#define MX_STATUS_ENDPOINT_UNREACHABLE OMX_REMOTE_ENDPOINT_UNREACHABLE
#define MX_STATUS_BAD_SESSION OMX_REMOTE_ENDPOINT_BAD_SESSION
#define MX_STATUS_BAD_KEY OMX_REMOTE_ENDPOINT_BAD_CONNECTION_KEY
#define MX_STATUS_BAD_ENDPOINT OMX_REMOTE_ENDPOINT_BAD_ID
#define MX_STATUS_BAD_RDMAWIN OMX_REMOTE_RDMA_WINDOW_BAD_ID
#define MX_STATUS_ABORTED OMX_MESSAGE_ABORTED
#define MX_STATUS_EVENTQ_FULL ((omx_return_t)215)
#define MX_STATUS_NO_RESOURCES OMX_NO_RESOURCES

typedef omx_return_t mx_return_t;
typedef omx_return_t mx_status_code_t;
typedef omx_endpoint_t mx_endpoint_t;
typedef omx_request_t mx_request_t;
typedef omx_endpoint_addr_t mx_endpoint_addr_t;
typedef omx_error_handler_t mx_error_handler_t;
typedef omx_endpoint_param_key_t mx_param_key_t;
typedef omx_endpoint_param_t mx_param_t;
typedef omx_seg_ptr_t mx_segment_ptr_t;
typedef omx_seg_t mx_segment_t;
typedef omx_status_t mx_status_t;
/* Members under their MX names. */
#define segment_ptr ptr
#define segment_length len
#define source addr
#define stuff data

#define MX_ERRORS_ARE_FATAL OMX_ERRORS_ARE_FATAL
#define MX_ERRORS_RETURN OMX_ERRORS_RETURN
#define MX_PARAM_ERROR_HANDLER OMX_ENDPOINT_PARAM_ERROR_HANDLER
#define MX_PARAM_UNEXP_QUEUE_MAX OMX_ENDPOINT_PARAM_UNEXP_QUEUE_MAX
#define MX_PARAM_CONTEXT_ID OMX_ENDPOINT_PARAM_CONTEXT_ID

typedef enum mx_line_speed {
    MX_SPEED_2G = 0,
    MX_SPEED_10G = 1,
    MX_SPEED_OPEN_MX = 2
} mx_line_speed_t;

typedef enum mx_net_type {
    MX_NET_MYRI = 0,
    MX_NET_ETHER = 1
} mx_net_type_t;

typedef enum mx_get_info_key {
    MX_NIC_COUNT = 1,
    MX_NIC_IDS = 2,
    MX_MAX_NATIVE_ENDPOINTS = 3,
    MX_NATIVE_REQUESTS = 4,
    MX_COUNTERS_COUNT = 5,
    MX_COUNTERS_LABELS = 6,
    MX_COUNTERS_VALUES = 7,
    MX_PRODUCT_CODE = 8,
    MX_PART_NUMBER = 9,
    MX_SERIAL_NUMBER = 10,
    MX_PORT_COUNT = 11,
    MX_PIO_SEND_MAX = 12,
    MX_COPY_SEND_MAX = 13,
    MX_NUMA_NODE = 14,
    MX_NET_TYPE = 15,
    MX_LINE_SPEED = 16
} mx_get_info_key_t;

/* Obsolete, never called. */
typedef void (*mx_matching_callback_t)(void *context, uint64_t match_info, int length);

/* Open-MX has no calls that do this: these are for this header alone. */
mx_return_t omx__mx_get_info(
    mx_endpoint_t endpoint, mx_get_info_key_t key, void *in_value, uint32_t in_len,
    void *out_value, uint32_t out_len);
mx_return_t omx__mx_buffered(
    mx_endpoint_t endpoint, mx_request_t *request, uint32_t timeout_ms, uint32_t *result);
#define mx_get_info omx__mx_get_info
#define mx_buffered omx__mx_buffered

/* Declared by MX and never implemented. */
static __inline__ mx_return_t mx_register_unexp_callback(
    mx_endpoint_t endpoint, mx_matching_callback_t callback, void *context)
{
    (void)endpoint;
    (void)callback;
    (void)context;
    return MX_FAILURE;
}

static __inline__ mx_return_t mx_iput(
    mx_endpoint_t endpoint, void *buffer, uint32_t length, mx_endpoint_addr_t destination,
    uint64_t remote_address, void *context, mx_request_t *request)
{
    (void)endpoint;
    (void)buffer;
    (void)length;
    (void)destination;
    (void)remote_address;
    (void)context;
    (void)request;
    return MX_FAILURE;
}

static __inline__ mx_return_t mx_iget(
    mx_endpoint_t endpoint, void *buffer, uint32_t length, mx_endpoint_addr_t from,
    uint64_t remote_address, void *context, mx_request_t *request)
{
    return mx_iput(endpoint, buffer, length, from, remote_address, context, request);
}

#define mx_finalize omx_finalize
#define mx_open_endpoint omx_open_endpoint
#define mx_close_endpoint omx_close_endpoint
#define mx_wakeup omx_wakeup
#define mx_disable_progression omx_disable_progression
#define mx_reenable_progression omx_reenable_progression
#define mx_cancel omx_cancel
#define mx_test omx_test
#define mx_test_any omx_test_any
#define mx_ipeek omx_ipeek
#define mx_iprobe omx_iprobe
#define mx_ibuffered omx_ibuffered
#define mx_context omx_context
#define mx_hostname_to_nic_id omx_hostname_to_nic_id
#define mx_board_number_to_nic_id omx_board_number_to_nic_id
#define mx_nic_id_to_board_number omx_nic_id_to_board_number
#define mx_nic_id_to_hostname omx_nic_id_to_hostname
#define mx_connect omx_connect
#define mx_decompose_endpoint_addr omx_decompose_endpoint_addr
#define mx_get_endpoint_addr omx_get_endpoint_addr
#define mx_strerror omx_strerror
#define mx_strstatus omx_strerror
#define mx_init() omx__init_api(MX_API)
#define mx__init_api omx__init_api
#define mx_set_error_handler(handler) omx_set_error_handler(NULL, handler)
#define mx_isend omx_isendv
#define mx_issend omx_issendv
#define mx_irecv omx_irecvv
#define mx_wait(endpoint, request, timeout, status, result) omx_wait(endpoint, request, status, result, timeout)
#define mx_wait_any(endpoint, timeout, info, mask, status, result) \
    omx_wait_any(endpoint, info, mask, status, result, timeout)
#define mx_peek(endpoint, timeout, request, result) omx_peek(endpoint, request, result, timeout)
#define mx_probe(endpoint, timeout, info, mask, status, result) \
    omx_probe(endpoint, info, mask, status, result, timeout)

#ifdef __cplusplus
}
#endif

#endif
