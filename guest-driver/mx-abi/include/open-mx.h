/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The Open-MX programming interface, version 0x301: link with -lopen-mx. Nothing here is copied from another header;
 * names, values and layouts are those of the interface. Unless said, functions return OMX_SUCCESS or the reason they did
 * nothing. */
#ifndef WEFT_OPEN_MX_H
#define WEFT_OPEN_MX_H

/* Programs rely on what the headers of MX and Open-MX bring with them: types and their formats, memory and strings. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OMX_API 0x301

#define OMX_ANY_NIC 0xffffffffU
#define OMX_ANY_ENDPOINT 0xffffffffU
/* No time limit; 0 checks once. */
#define OMX_TIMEOUT_INFINITE 0xffffffffU
#define OMX_MAX_SEGMENTS 256
#define OMX_ENDPOINT_CONTEXT_ID_BITS_MAX 16
/* Bytes of a host name and of an address as text, their ends included. */
#define OMX_HOSTNAMELEN_MAX 80
#define OMX_BOARD_ADDR_STRLEN 18
#define OMX_SIZEOF_ADDR 16

typedef enum omx_return_code {
    OMX_SUCCESS = 0,
    OMX_BAD_ERROR = 1,
    OMX_ALREADY_INITIALIZED = 3,
    OMX_NOT_INITIALIZED = 4,
    OMX_NO_DEVICE_FILE = 5,
    OMX_NO_DRIVER = 6,
    OMX_ACCESS_DENIED = 7,
    OMX_BOARD_NOT_FOUND = 8,
    OMX_BAD_ENDPOINT = 9,
    OMX_SEGMENTS_BAD_COUNT = 12,
    OMX_BAD_REQUEST = 13,
    OMX_BAD_MATCH_MASK = 14,
    OMX_NO_RESOURCES = 15,
    OMX_BUSY = 20,
    OMX_BAD_INFO_KEY = 21,
    OMX_BAD_INFO_ADDRESS = 22,
    OMX_ENDPOINT_PARAMS_BAD_LIST = 24,
    OMX_ENDPOINT_PARAM_BAD_KEY = 25,
    OMX_ENDPOINT_PARAM_BAD_VALUE = 26,
    OMX_PEER_NOT_FOUND = 28,
    OMX_TIMEOUT = 30,
    OMX_REMOTE_ENDPOINT_BAD_ID = 32,
    OMX_REMOTE_ENDPOINT_CLOSED = 33,
    OMX_REMOTE_ENDPOINT_BAD_CONNECTION_KEY = 34,
    OMX_BAD_INFO_LENGTH = 35,
    OMX_NIC_ID_NOT_FOUND = 36,
    OMX_BAD_KERNEL_ABI = 37,
    OMX_BAD_LIB_ABI = 38,
    OMX_NOT_SUPPORTED_IN_HANDLER = 96,
    OMX_BAD_MATCHING_FOR_CONTEXT_ID_MASK = 42,
    OMX_CANCELLED = 90,
    OMX_REMOTE_RDMA_WINDOW_BAD_ID = 91,
    OMX_REMOTE_ENDPOINT_UNREACHABLE = 92,
    OMX_REMOTE_ENDPOINT_BAD_SESSION = 93,
    OMX_MESSAGE_ABORTED = 94,
    OMX_MESSAGE_TRUNCATED = 95,
    OMX_NO_SYSTEM_RESOURCES = 97,
    OMX_NOT_IMPLEMENTED = 99,
    OMX_RETURN_CODE_MAX = 100
} omx_return_t;

typedef omx_return_t omx_status_code_t;

/* An open endpoint, and a request of one. */
typedef struct omx_endpoint *omx_endpoint_t;
typedef union omx_request *omx_request_t;

/* A remote endpoint as one endpoint of this process knows it. May be copied, and compared byte by byte. */
typedef struct omx_endpoint_addr {
    uint64_t data[2];
} omx_endpoint_addr_t;

/* A piece of a message. */
typedef void *omx_seg_ptr_t;
typedef struct omx_seg {
    omx_seg_ptr_t ptr;
    uint32_t len;
} omx_seg_t;

/* How a request ended, or what a probe found. */
typedef struct omx_status {
    omx_return_t code;
    omx_endpoint_addr_t addr;
    uint64_t match_info;
    uint32_t msg_length;
    uint32_t xfer_length;
    void *context;
} omx_status_t;

/* Called for errors; what it returns is what the call returns. */
typedef omx_return_t (*omx_error_handler_t)(char *text, omx_return_t code);
extern omx_error_handler_t OMX_ERRORS_ARE_FATAL;
extern omx_error_handler_t OMX_ERRORS_RETURN;

typedef enum omx_endpoint_param_key {
    OMX_ENDPOINT_PARAM_ERROR_HANDLER = 0,
    OMX_ENDPOINT_PARAM_UNEXP_QUEUE_MAX = 1,
    OMX_ENDPOINT_PARAM_CONTEXT_ID = 2
} omx_endpoint_param_key_t;

/* A parameter of omx_open_endpoint. */
typedef struct omx_endpoint_param {
    omx_endpoint_param_key_t key;
    union {
        omx_error_handler_t error_handler;
        uint32_t unexp_queue_max;
        struct {
            uint8_t bits;
            uint8_t shift;
        } context_id;
    } val;
} omx_endpoint_param_t;

/* What an unexpected handler did with a message. */
typedef enum omx_unexp_handler_action {
    OMX_UNEXP_HANDLER_RECV_CONTINUE = 0,
    OMX_UNEXP_HANDLER_RECV_FINISHED = 1
} omx_unexp_handler_action_t;

/* Called for a message that no posted receive matches; the data are there for short ones only. */
typedef omx_unexp_handler_action_t (*omx_unexp_handler_t)(void *context, omx_endpoint_addr_t source, uint64_t match_info,
                                                          uint32_t length, void *data_if_available);

typedef enum omx_info_key {
    OMX_INFO_BOARD_MAX = 0,
    OMX_INFO_ENDPOINT_MAX = 1,
    OMX_INFO_BOARD_COUNT = 2,
    OMX_INFO_BOARD_IDS = 3,
    OMX_INFO_BOARD_HOSTNAME = 4,
    OMX_INFO_BOARD_IFACENAME = 5,
    OMX_INFO_BOARD_NUMA_NODE = 6,
    OMX_INFO_COUNTER_MAX = 7,
    OMX_INFO_COUNTER_VALUES = 8,
    OMX_INFO_COUNTER_LABEL = 9
} omx_info_key_t;

/* The library. */
omx_return_t omx__init_api(int api);
omx_return_t omx_finalize(void);
omx_error_handler_t omx_set_error_handler(omx_endpoint_t endpoint, omx_error_handler_t handler);
const char *omx_strerror(omx_return_t code);

/* Boards and names. */
omx_return_t omx_get_info(
    omx_endpoint_t endpoint, omx_info_key_t key, const void *in_value, uint32_t in_len,
    void *out_value, uint32_t out_len);
omx_return_t omx_hostname_to_nic_id(char *hostname, uint64_t *nic_id);
omx_return_t omx_nic_id_to_hostname(uint64_t nic_id, char *hostname);
omx_return_t omx_board_number_to_nic_id(uint32_t board_number, uint64_t *nic_id);
omx_return_t omx_nic_id_to_board_number(uint64_t nic_id, uint32_t *board_number);

/* Endpoints. */
omx_return_t omx_open_endpoint(
    uint32_t board_number, uint32_t endpoint_id, uint32_t key, omx_endpoint_param_t *params,
    uint32_t params_count, omx_endpoint_t *endpoint);
omx_return_t omx_close_endpoint(omx_endpoint_t endpoint);
omx_return_t omx_wakeup(omx_endpoint_t endpoint);
omx_return_t omx_disable_progression(omx_endpoint_t endpoint);
omx_return_t omx_reenable_progression(omx_endpoint_t endpoint);
omx_return_t omx_progress(omx_endpoint_t endpoint);
omx_return_t omx_register_unexp_handler(
    omx_endpoint_t endpoint, omx_unexp_handler_t handler, void *context);
omx_return_t omx_set_request_timeout(
    omx_endpoint_t endpoint, omx_request_t request, uint32_t timeout_ms);

/* Addresses and connections. */
omx_return_t omx_get_endpoint_addr(omx_endpoint_t endpoint, omx_endpoint_addr_t *address);
omx_return_t omx_decompose_endpoint_addr(
    omx_endpoint_addr_t address, uint64_t *nic_id, uint32_t *endpoint_id);
omx_return_t omx_decompose_endpoint_addr_with_session(
    omx_endpoint_addr_t address, uint64_t *nic_id, uint32_t *endpoint_id, uint32_t *session);
omx_return_t omx_connect(
    omx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key,
    uint32_t timeout_ms, omx_endpoint_addr_t *address);
omx_return_t omx_iconnect(
    omx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key,
    uint64_t match_info, void *context, omx_request_t *request);
omx_return_t omx_disconnect(omx_endpoint_t endpoint, omx_endpoint_addr_t address);
omx_return_t omx_set_endpoint_addr_context(omx_endpoint_addr_t address, void *context);
omx_return_t omx_get_endpoint_addr_context(omx_endpoint_addr_t address, void **context);

/* Messages: of one buffer, or of up to 256 segments; without a request the completion is not taken. */
omx_return_t omx_isend(
    omx_endpoint_t endpoint, void *buffer, size_t length, omx_endpoint_addr_t destination,
    uint64_t match_info, void *context, omx_request_t *request);
omx_return_t omx_issend(
    omx_endpoint_t endpoint, void *buffer, size_t length, omx_endpoint_addr_t destination,
    uint64_t match_info, void *context, omx_request_t *request);
omx_return_t omx_irecv(
    omx_endpoint_t endpoint, void *buffer, size_t length, uint64_t match_info, uint64_t match_mask,
    void *context, omx_request_t *request);
omx_return_t omx_isendv(
    omx_endpoint_t endpoint, omx_seg_t *segments, uint32_t count, omx_endpoint_addr_t destination,
    uint64_t match_info, void *context, omx_request_t *request);
omx_return_t omx_issendv(
    omx_endpoint_t endpoint, omx_seg_t *segments, uint32_t count, omx_endpoint_addr_t destination,
    uint64_t match_info, void *context, omx_request_t *request);
omx_return_t omx_irecvv(
    omx_endpoint_t endpoint, omx_seg_t *segments, uint32_t count, uint64_t match_info,
    uint64_t match_mask, void *context, omx_request_t *request);
omx_return_t omx_cancel(omx_endpoint_t endpoint, omx_request_t *request, uint32_t *result);
/* The request stays, and completes as OMX_CANCELLED. The program asked for that: no error handler hears of it. */
omx_return_t omx_cancel_notest(omx_endpoint_t endpoint, omx_request_t *request, uint32_t *result);
omx_return_t omx_forget(omx_endpoint_t endpoint, omx_request_t *request);
omx_return_t omx_context(omx_request_t *request, void **context);

/* Completion: result is 1 when there is one; the end of the time limit and omx_wakeup are no errors. */
omx_return_t omx_test(
    omx_endpoint_t endpoint, omx_request_t *request, omx_status_t *status, uint32_t *result);
omx_return_t omx_wait(
    omx_endpoint_t endpoint, omx_request_t *request, omx_status_t *status, uint32_t *result,
    uint32_t timeout_ms);
omx_return_t omx_test_any(
    omx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask, omx_status_t *status,
    uint32_t *result);
omx_return_t omx_wait_any(
    omx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask, omx_status_t *status,
    uint32_t *result, uint32_t timeout_ms);
omx_return_t omx_ipeek(omx_endpoint_t endpoint, omx_request_t *request, uint32_t *result);
omx_return_t omx_peek(
    omx_endpoint_t endpoint, omx_request_t *request, uint32_t *result, uint32_t timeout_ms);
omx_return_t omx_iprobe(
    omx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask, omx_status_t *status,
    uint32_t *result);
omx_return_t omx_probe(
    omx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask, omx_status_t *status,
    uint32_t *result, uint32_t timeout_ms);
omx_return_t omx_ibuffered(omx_endpoint_t endpoint, omx_request_t *request, uint32_t *result);

static __inline__ omx_return_t omx_init(void)
{
    return omx__init_api(OMX_API);
}

#ifdef __cplusplus
}
#endif

#endif
