/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Every function of both interfaces that `messages`, `calls` and `raw` do not reach, with its success and each error it has: api. Board 0 exists
 * and is switched on, board 1 exists. */
#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include <mx_extensions.h>
#include <myriexpress.h>
#include <open-mx.h>

#include "check.h"

#define ALL (~(uint64_t)0)
#define LONG_MS 20000

/* In no header. */
int mx__regcache_clean(void *, size_t);

static void before_init(void)
{
    omx_endpoint_t oe;
    mx_endpoint_t me;
    uint64_t nic = 0;
    uint32_t number = 0;
    char name[MX_MAX_HOSTNAME_LEN];
    RETURNS(omx_open_endpoint(0, 0, 0, NULL, 0, &oe), OMX_NOT_INITIALIZED);
    RETURNS(mx_open_endpoint(0, 0, 0, NULL, 0, &me), MX_NOT_INITIALIZED);
    RETURNS(omx_board_number_to_nic_id(0, &nic), OMX_NOT_INITIALIZED);
    RETURNS(mx_board_number_to_nic_id(0, &nic), MX_NOT_INITIALIZED);
    RETURNS(omx_nic_id_to_board_number(0, &number), OMX_NOT_INITIALIZED);
    RETURNS(mx_nic_id_to_board_number(0, &number), MX_NOT_INITIALIZED);
    RETURNS(omx_get_info(NULL, OMX_INFO_BOARD_COUNT, NULL, 0, &number, 4), OMX_NOT_INITIALIZED);
    RETURNS(mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &number, 4), MX_NOT_INITIALIZED);
    RETURNS(omx_hostname_to_nic_id("x:0", &nic), OMX_NOT_INITIALIZED);
    RETURNS(mx_nic_id_to_hostname(0, name), MX_NOT_INITIALIZED);
    RETURNS(omx_finalize(), OMX_NOT_INITIALIZED);
    RETURNS(mx__init_api(0), MX_BAD_LIB_VERSION);
    RETURNS(mx__init_api(0x2ff), MX_BAD_LIB_VERSION);
    RETURNS(omx__init_api(0x400), OMX_BAD_LIB_ABI);
    OK(omx__init_api(0x3ff));
    RETURNS(omx_init(), OMX_ALREADY_INITIALIZED);
    RETURNS(mx_init(), MX_ALREADY_INITIALIZED);
    OK(omx_finalize());
    OK(mx_init());
}

static void texts(void)
{
    for (int code = -1; code < 300; code++) {
        CHECK(mx_strerror((mx_return_t)code) && *mx_strerror((mx_return_t)code));
        CHECK(omx_strerror((omx_return_t)code) && *omx_strerror((omx_return_t)code));
        CHECK(mx_strstatus((mx_status_code_t)code) && *mx_strstatus((mx_status_code_t)code));
    }
    CHECK(strcmp(mx_strerror(MX_BUSY), mx_strerror(MX_TIMEOUT)));
    CHECK(!strcmp(mx_strstatus(MX_STATUS_TRUNCATED), omx_strerror(OMX_MESSAGE_TRUNCATED)));
}

static void boards(void)
{
    uint64_t nic = 0, first = 0;
    uint32_t number = 7;
    OK(mx_board_number_to_nic_id(0, &first));
    OK(omx_board_number_to_nic_id(0, &nic));
    CHECK(nic == first && nic >> 48 == 0 && nic != 0);
    OK(omx_board_number_to_nic_id(1, &nic));
    OK(mx_nic_id_to_board_number(nic, &number));
    CHECK(number == 1);
    OK(omx_nic_id_to_board_number(first, &number));
    CHECK(number == 0);
    RETURNS(mx_board_number_to_nic_id(99, &nic), MX_BOARD_UNKNOWN);
    RETURNS(omx_board_number_to_nic_id(99, &nic), OMX_BOARD_NOT_FOUND);
    RETURNS(mx_nic_id_to_board_number(42, &number), MX_BOARD_UNKNOWN);
    RETURNS(omx_nic_id_to_board_number(42, &number), OMX_BOARD_NOT_FOUND);
}

static void names(void)
{
    uint64_t nic, found = 0;
    char name[MX_MAX_HOSTNAME_LEN] = "", board[MX_MAX_STR_LEN] = "";
    uint8_t zero = 0;
    OK(mx_board_number_to_nic_id(0, &nic));
    OK(mx_nic_id_to_hostname(nic, name));
    OK(omx_get_info(NULL, OMX_INFO_BOARD_HOSTNAME, &zero, 1, board, sizeof board));
    CHECK(*name && !strcmp(name, board) && strchr(name, ':'));
    OK(mx_hostname_to_nic_id(name, &found));
    CHECK(found == nic);
    OK(omx_hostname_to_nic_id(name, &found));
    CHECK(found == nic);
    *name = 'x';
    OK(omx_nic_id_to_hostname(nic, name));
    CHECK(!strcmp(name, board));
    RETURNS(mx_hostname_to_nic_id("no such host", &found), MX_HOST_NOT_FOUND);
    RETURNS(omx_hostname_to_nic_id("no such host", &found), OMX_PEER_NOT_FOUND);
    RETURNS(mx_nic_id_to_hostname(42, name), MX_HOST_NOT_FOUND);
    RETURNS(omx_nic_id_to_hostname(42, name), OMX_PEER_NOT_FOUND);
}

#define CUT_ROOM 8

/* A text was put into less room than it needs: its beginning is there with its end, and nothing behind that. */
static void cut_to(char *found, const char *whole, size_t room)
{
    CHECK(strlen(found) == room - 1 && !strncmp(found, whole, room - 1));
    for (size_t i = room; i < CUT_ROOM; i++)
        CHECK(found[i] == '#');
    memset(found, '#', CUT_ROOM);
}

static void information(mx_endpoint_t me, omx_endpoint_t oe)
{
    static const struct { mx_get_info_key_t key; uint32_t value; } plain[] = {
        {MX_MAX_NATIVE_ENDPOINTS, 32}, {MX_NATIVE_REQUESTS, 0xffffffff}, {MX_COUNTERS_COUNT, 85}, {MX_PORT_COUNT, 1},
        {MX_PIO_SEND_MAX, 128}, {MX_COPY_SEND_MAX, 32768}, {MX_NET_TYPE, MX_NET_ETHER},
    };
    static const mx_get_info_key_t strings[] = {MX_PRODUCT_CODE, MX_PART_NUMBER, MX_SERIAL_NUMBER};
    static uint32_t values[85];
    static char labels[85][MX_MAX_STR_LEN];
    uint32_t value = 0, board = 0, bad = 99;
    uint64_t ids[32] = {1, 1, 1};
    char text[MX_MAX_STR_LEN], short_text[CUT_ROOM];
    uint8_t byte = 0;
    memset(short_text, '#', sizeof short_text);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        OK(mx_get_info(NULL, plain[i].key, NULL, 0, &value, sizeof value));
        CHECK(value == plain[i].value);
        RETURNS(mx_get_info(NULL, plain[i].key, NULL, 0, &value, 3), MX_BAD_INFO_LENGTH);
        RETURNS(mx_get_info(NULL, plain[i].key, NULL, 0, NULL, 4), MX_BAD_INFO_VAL);
    }
    for (int i = 0; i < 3; i++) {
        OK(mx_get_info(NULL, strings[i], NULL, 0, text, sizeof text));
        CHECK(!strcmp(text, "N/A (Open-MX)"));
        for (uint32_t room = 1; room < 6; room++) {
            OK(mx_get_info(NULL, strings[i], NULL, 0, short_text, room));
            cut_to(short_text, text, room);
        }
        RETURNS(mx_get_info(NULL, strings[i], NULL, 0, text, 0), MX_BAD_INFO_LENGTH);
    }
    OK(mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &value, sizeof value));
    CHECK(value == 2);
    OK(mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, 24));
    CHECK(ids[0] && ids[1] && ids[2] == 0);
    RETURNS(mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, 16), MX_BAD_INFO_LENGTH);
    OK(mx_get_info(NULL, MX_COUNTERS_LABELS, NULL, 0, labels, sizeof labels));
    CHECK(!strcmp(labels[0], "SEND_TINY") && !strcmp(labels[84], "SHARED_DMA_PARTIAL_LARGE"));
    RETURNS(mx_get_info(NULL, MX_COUNTERS_LABELS, NULL, 0, labels, sizeof labels - 1), MX_BAD_INFO_LENGTH);
    OK(mx_get_info(me, MX_COUNTERS_VALUES, NULL, 0, values, sizeof values));
    OK(mx_get_info(NULL, MX_COUNTERS_VALUES, &board, sizeof board, values, sizeof values));
    RETURNS(mx_get_info(NULL, MX_COUNTERS_VALUES, &bad, sizeof bad, values, sizeof values), MX_BOARD_UNKNOWN);
    RETURNS(mx_get_info(NULL, MX_COUNTERS_VALUES, NULL, 4, values, sizeof values), MX_BAD_INFO_VAL);
    RETURNS(mx_get_info(NULL, MX_COUNTERS_VALUES, &board, 0, values, sizeof values), MX_BAD_INFO_LENGTH);
    OK(mx_get_info(me, MX_NUMA_NODE, NULL, 0, &value, sizeof value));
    OK(mx_get_info(NULL, MX_NUMA_NODE, &byte, 1, &value, sizeof value));
    /* Messages that take more than 32 frames of 1500 bytes are never sent unasked. */
    CHECK(!setenv("OMX_RNDV_THRESHOLD", "1000000", 1));
    OK(mx_get_info(me, MX_COPY_SEND_MAX, NULL, 0, &value, sizeof value));
    CHECK(value == 32 * 1452);
    CHECK(!setenv("OMX_RNDV_THRESHOLD", "200", 1));
    OK(mx_get_info(NULL, MX_COPY_SEND_MAX, NULL, 0, &value, sizeof value));
    CHECK(value == 200);
    CHECK(!unsetenv("OMX_RNDV_THRESHOLD"));
    OK(mx_get_info(me, MX_LINE_SPEED, NULL, 0, &value, sizeof value));
    CHECK(value == MX_SPEED_OPEN_MX);
    RETURNS(mx_get_info(NULL, (mx_get_info_key_t)77, NULL, 0, &value, sizeof value), MX_BAD_INFO_KEY);
    RETURNS(mx_get_info((mx_endpoint_t)&value, MX_NIC_COUNT, NULL, 0, &value, 4), MX_BAD_ENDPOINT);

    OK(omx_get_info(NULL, OMX_INFO_BOARD_MAX, NULL, 0, &value, sizeof value));
    CHECK(value == 32);
    OK(omx_get_info(NULL, OMX_INFO_ENDPOINT_MAX, NULL, 0, &value, sizeof value));
    CHECK(value == 32);
    OK(omx_get_info(NULL, OMX_INFO_BOARD_COUNT, NULL, 0, &value, sizeof value));
    CHECK(value == 2);
    OK(omx_get_info(NULL, OMX_INFO_BOARD_IDS, NULL, 0, ids, sizeof ids));
    OK(omx_get_info(oe, OMX_INFO_BOARD_HOSTNAME, NULL, 0, text, sizeof text));
    OK(omx_get_info(oe, OMX_INFO_BOARD_IFACENAME, NULL, 0, text, sizeof text));
    CHECK(*text);
    for (uint32_t room = 1; room < 3; room++) {
        omx_info_key_t names[] = {OMX_INFO_BOARD_HOSTNAME, OMX_INFO_BOARD_IFACENAME, OMX_INFO_COUNTER_LABEL};
        for (int i = 0; i < 3; i++) {
            omx_endpoint_t of[] = {oe, NULL};
            for (int j = 0; j < 2; j++) {
                OK(omx_get_info(of[j], names[i], &byte, 1, text, sizeof text));
                OK(omx_get_info(of[j], names[i], &byte, 1, short_text, room));
                cut_to(short_text, text, room);
                RETURNS(omx_get_info(of[j], names[i], &byte, 1, short_text, 0), OMX_BAD_INFO_LENGTH);
            }
        }
    }
    OK(omx_get_info(NULL, OMX_INFO_BOARD_NUMA_NODE, &byte, 1, &value, sizeof value));
    OK(omx_get_info(NULL, OMX_INFO_COUNTER_MAX, NULL, 0, &value, sizeof value));
    CHECK(value == 85);
    OK(omx_get_info(NULL, OMX_INFO_COUNTER_VALUES, &byte, 1, values, sizeof values));
    byte = 84;
    OK(omx_get_info(NULL, OMX_INFO_COUNTER_LABEL, &byte, 1, text, sizeof text));
    CHECK(!strcmp(text, "SHARED_DMA_PARTIAL_LARGE"));
    byte = 85;
    RETURNS(omx_get_info(NULL, OMX_INFO_COUNTER_LABEL, &byte, 1, text, sizeof text), OMX_BAD_INFO_KEY);
    RETURNS(omx_get_info(NULL, OMX_INFO_BOARD_IFACENAME, &byte, 1, text, sizeof text), OMX_BOARD_NOT_FOUND);
    RETURNS(omx_get_info(NULL, OMX_INFO_BOARD_COUNT, NULL, 0, &value, 1), OMX_BAD_INFO_LENGTH);
    RETURNS(omx_get_info(NULL, OMX_INFO_BOARD_COUNT, NULL, 0, NULL, 4), OMX_BAD_INFO_ADDRESS);
    RETURNS(omx_get_info(NULL, (omx_info_key_t)55, NULL, 0, &value, 4), OMX_BAD_INFO_KEY);
}

/* Asked with an endpoint its board answers: for everything on it. */
static void counters_are_those_of_the_board(mx_endpoint_t me, omx_endpoint_t oe)
{
    static uint32_t before[85], by_endpoint[85], after[85];
    omx_endpoint_t other;
    omx_endpoint_addr_t to_other;
    uint32_t board = 0, id;
    uint64_t nic;
    OK(omx_open_endpoint(1, OMX_ANY_ENDPOINT, 0, NULL, 0, &other));
    OK(omx_get_endpoint_addr(other, &to_other));
    OK(omx_decompose_endpoint_addr(to_other, &nic, &id));
    OK(omx_connect(oe, nic, id, 0, LONG_MS, &to_other));
    for (int i = 0; i < 20; i++)
        OK(omx_isend(oe, "x", 1, to_other, 1, NULL, NULL));
    /* The first counter is that of tiny messages, which `me` sends none of. */
    while (before[0] < 20) {
        OK(omx_progress(oe));
        OK(mx_get_info(NULL, MX_COUNTERS_VALUES, &board, sizeof board, before, sizeof before));
    }
    OK(mx_get_info(me, MX_COUNTERS_VALUES, NULL, 0, by_endpoint, sizeof by_endpoint));
    OK(mx_get_info(NULL, MX_COUNTERS_VALUES, &board, sizeof board, after, sizeof after));
    for (int i = 0; i < 85; i++)
        CHECK(before[i] <= by_endpoint[i] && by_endpoint[i] <= after[i]);
    /* What was sent has also come: an endpoint that is closed before refuses it, which the handler of errors would be told. */
    for (int i = 0; i < 20; i++) {
        omx_request_t receive;
        omx_status_t status;
        uint32_t result;
        char in;
        OK(omx_irecv(other, &in, 1, 1, ALL, NULL, &receive));
        OK(omx_wait(other, &receive, &status, &result, LONG_MS));
        CHECK(result == 1 && status.code == OMX_SUCCESS && in == 'x');
    }
    OK(omx_close_endpoint(other));
}

static void opening(void)
{
    omx_endpoint_t first, second;
    omx_endpoint_param_t param = {.key = OMX_ENDPOINT_PARAM_UNEXP_QUEUE_MAX, .val.unexp_queue_max = 5};
    mx_param_t mx_param = {.key = (mx_param_key_t)9};
    mx_endpoint_t me;
    OK(omx_open_endpoint(0, 5, 0, &param, 1, &first));
    RETURNS(omx_open_endpoint(0, 5, 0, NULL, 0, &second), OMX_BUSY);
    RETURNS(omx_open_endpoint(0, 32, 0, NULL, 0, &second), OMX_BAD_ENDPOINT);
    RETURNS(omx_open_endpoint(0, 3000, 0, NULL, 0, &second), OMX_BAD_ENDPOINT);
    RETURNS(omx_open_endpoint(7, 0, 0, NULL, 0, &second), OMX_BOARD_NOT_FOUND);
    RETURNS(omx_open_endpoint(0, 0, 0, NULL, 1, &second), OMX_ENDPOINT_PARAMS_BAD_LIST);
    param.key = (omx_endpoint_param_key_t)9;
    RETURNS(omx_open_endpoint(0, 0, 0, &param, 1, &second), OMX_ENDPOINT_PARAM_BAD_KEY);
    param.key = OMX_ENDPOINT_PARAM_CONTEXT_ID;
    param.val.context_id.bits = 16;
    param.val.context_id.shift = 49;
    RETURNS(omx_open_endpoint(0, 0, 0, &param, 1, &second), OMX_ENDPOINT_PARAM_BAD_VALUE);
    RETURNS(mx_open_endpoint(0, 5, 0, NULL, 0, &me), MX_BUSY);
    RETURNS(mx_open_endpoint(0, 32, 0, NULL, 0, &me), MX_BAD_ENDPOINT);
    RETURNS(mx_open_endpoint(7, 0, 0, NULL, 0, &me), MX_BOARD_UNKNOWN);
    RETURNS(mx_open_endpoint(0, 0, 0, NULL, 1, &me), MX_BAD_PARAM_LIST);
    RETURNS(mx_open_endpoint(0, 0, 0, &mx_param, 1, &me), MX_BAD_PARAM_NAME);
    /* Any board: number 5 is taken on the first one, so the second has it. */
    OK(omx_open_endpoint(OMX_ANY_NIC, 5, 0, NULL, 0, &second));
    uint64_t nic, expected;
    uint32_t id, session;
    omx_endpoint_addr_t address;
    OK(omx_get_endpoint_addr(second, &address));
    OK(omx_decompose_endpoint_addr_with_session(address, &nic, &id, &session));
    OK(omx_board_number_to_nic_id(1, &expected));
    CHECK(nic == expected && id == 5);
    OK(omx_close_endpoint(second));
    RETURNS(omx_close_endpoint(second), OMX_BAD_ENDPOINT);
    RETURNS(omx_close_endpoint(NULL), OMX_BAD_ENDPOINT);
    RETURNS(omx_wakeup(second), OMX_BAD_ENDPOINT);
    RETURNS(omx_progress((omx_endpoint_t)&nic), OMX_BAD_ENDPOINT);
    RETURNS(mx_wakeup(NULL), MX_BAD_ENDPOINT);
    RETURNS(mx_disable_progression(NULL), MX_BAD_ENDPOINT);
    RETURNS(mx_reenable_progression(NULL), MX_BAD_ENDPOINT);
    RETURNS(mx_register_unexp_handler(NULL, NULL, NULL), MX_BAD_ENDPOINT);
    OK(omx_close_endpoint(first));
    /* A number is free as soon as its endpoint is closed. */
    for (int i = 0; i < 50; i++) {
        OK(omx_open_endpoint(0, 5, 0, NULL, 0, &first));
        OK(omx_progress(first));
        OK(omx_close_endpoint(first));
    }
}

static omx_unexp_handler_action_t handled(void *context, omx_endpoint_addr_t from, uint64_t info, uint32_t length, void *data)
{
    (void)from;
    CHECK(info == 50 && length == 3 && !memcmp(data, "abc", 3));
    RETURNS(omx_close_endpoint(*(omx_endpoint_t *)context), OMX_NOT_SUPPORTED_IN_HANDLER);
    RETURNS(omx_finalize(), OMX_NOT_SUPPORTED_IN_HANDLER);
    *(omx_endpoint_t *)context = NULL;
    return OMX_UNEXP_HANDLER_RECV_FINISHED;
}

static omx_return_t other_handler(char *text, omx_return_t code)
{
    (void)text;
    return code == OMX_BAD_MATCH_MASK ? OMX_NOT_IMPLEMENTED : code;
}

static int noted;

static omx_return_t note(char *text, omx_return_t code)
{
    CHECK(text != NULL);
    noted++;
    return code;
}

/* Cancelled and kept, a request completes as that. No handler hears of it: by default that would be the program's end. */
static void cancelled_requests_are_no_errors(omx_endpoint_t e)
{
    omx_request_t request, copy;
    omx_status_t status;
    uint32_t result;
    char in;
    CHECK(omx_set_error_handler(e, OMX_ERRORS_ARE_FATAL) == OMX_ERRORS_RETURN);
    for (int taken_by = 0; taken_by < 4; taken_by++) {
        for (int is_connect = 0; is_connect < 2; is_connect++) {
            if (is_connect)
                OK(omx_iconnect(e, 0x020000fffffdULL, 0, 0, 61, &in, &request));
            else
                OK(omx_irecv(e, &in, 1, 61, ALL, &in, &request));
            OK(omx_cancel_notest(e, &request, &result));
            CHECK(result == 1 && request != NULL);
            switch (taken_by) {
            case 0: OK(omx_test(e, &request, &status, &result)); break;
            case 1: OK(omx_wait(e, &request, &status, &result, OMX_TIMEOUT_INFINITE)); break;
            case 2: OK(omx_test_any(e, 61, ALL, &status, &result)); break;
            case 3: OK(omx_wait_any(e, 61, ALL, &status, &result, OMX_TIMEOUT_INFINITE)); break;
            }
            CHECK(result == 1 && status.code == OMX_CANCELLED && status.context == &in && status.xfer_length == 0);
        }
    }
    CHECK(omx_set_error_handler(e, note) == OMX_ERRORS_ARE_FATAL);
    /* Whether forgotten before or after, or only taken back. */
    OK(omx_irecv(e, &in, 1, 61, ALL, NULL, &request));
    OK(omx_cancel_notest(e, &request, &result));
    OK(omx_forget(e, &request));
    OK(omx_irecv(e, &in, 1, 61, ALL, NULL, &request));
    copy = request;
    OK(omx_forget(e, &request));
    OK(omx_cancel_notest(e, &copy, &result));
    CHECK(result == 1);
    OK(omx_irecv(e, &in, 1, 61, ALL, NULL, &request));
    OK(omx_cancel(e, &request, &result));
    CHECK(result == 1 && request == NULL);
    OK(omx_progress(e));
    OK(omx_ipeek(e, &request, &result));
    CHECK(result == 0 && noted == 0);
    /* What it does hear of: a send cannot be cancelled. */
    omx_endpoint_addr_t self;
    OK(omx_get_endpoint_addr(e, &self));
    OK(omx_isend(e, &in, 1, self, 61, NULL, &request));
    RETURNS(omx_cancel_notest(e, &request, &result), OMX_BAD_REQUEST);
    RETURNS(omx_cancel(e, &request, &result), OMX_BAD_REQUEST);
    CHECK(noted == 2);
    OK(omx_irecv(e, NULL, 0, 61, ALL, NULL, NULL));
    OK(omx_wait(e, &request, &status, &result, LONG_MS));
    CHECK(result == 1 && status.code == OMX_MESSAGE_TRUNCATED && noted >= 3);
    CHECK(omx_set_error_handler(e, NULL) == note);
}

/* The functions that only Open-MX has, or has with other arguments, on an endpoint that talks to itself and to another one. */
static void open_mx_calls(omx_endpoint_t e, omx_endpoint_t other)
{
    omx_endpoint_addr_t self, address;
    omx_status_t status;
    omx_request_t send, receive, later, request = NULL;
    uint64_t nic;
    uint32_t id, result;
    char out[200] = "text", in[200];
    static char big[100000];
    omx_seg_t from[2] = {{out, 2}, {out + 2, 3}}, to = {in, sizeof in}, many[257];
    void *context;
    OK(omx_get_endpoint_addr(e, &self));
    OK(omx_decompose_endpoint_addr(self, &nic, &id));
    OK(omx_connect(e, nic, id, 0, OMX_TIMEOUT_INFINITE, &address));
    CHECK(!memcmp(&self, &address, sizeof self));
    RETURNS(omx_connect(e, nic, 30, 0, LONG_MS, &address), OMX_REMOTE_ENDPOINT_CLOSED);
    RETURNS(omx_connect(e, nic, 300, 0, LONG_MS, &address), OMX_REMOTE_ENDPOINT_BAD_ID);
    RETURNS(omx_connect(e, nic, id, 1, LONG_MS, &address), OMX_REMOTE_ENDPOINT_BAD_CONNECTION_KEY);
    RETURNS(omx_connect(e, ~nic, id, 1, LONG_MS, &address), OMX_NIC_ID_NOT_FOUND);
    RETURNS(omx_connect(e, 0x020000fffffeULL, 0, 0, 5, &address), OMX_TIMEOUT);
    RETURNS(omx_iconnect(e, ~nic, id, 1, 2, NULL, &request), OMX_NIC_ID_NOT_FOUND);
    OK(omx_iconnect(e, nic, id, 0, 0x11, out, &request));
    OK(omx_wait(e, &request, &status, &result, OMX_TIMEOUT_INFINITE));
    CHECK(result == 1 && request == NULL && status.match_info == 0x11 && status.context == out);
    /* What a started connect comes to is in its status, a number that no endpoint can have included: also within the host. */
    OK(omx_iconnect(e, nic, 300, 0, 0x12, NULL, &request));
    OK(omx_wait(e, &request, &status, &result, LONG_MS));
    CHECK(result == 1 && status.code == OMX_REMOTE_ENDPOINT_BAD_ID && status.match_info == 0x12);
    /* One buffer, segments, synchronous. */
    for (int i = 0; i < 4; i++) {
        memset(in, 0, sizeof in);
        if (i % 2)
            OK(omx_irecv(e, in, sizeof in, 60, ALL, in, &receive));
        else
            OK(omx_irecvv(e, &to, 1, 60, ALL, in, &receive));
        switch (i) {
        case 0: OK(omx_isend(e, out, 5, self, 60, NULL, &send)); break;
        case 1: OK(omx_issend(e, out, 5, self, 60, NULL, &send)); break;
        case 2: OK(omx_isendv(e, from, 2, self, 60, NULL, &send)); break;
        case 3: OK(omx_issendv(e, from, 2, self, 60, NULL, &send)); break;
        }
        OK(omx_context(&receive, &context));
        CHECK(context == in);
        OK(omx_ibuffered(e, &send, &result));
        CHECK(result == 1);
        OK(omx_wait(e, &receive, &status, &result, LONG_MS));
        CHECK(result == 1 && status.xfer_length == 5 && !strcmp(in, "text"));
        OK(omx_test(e, &send, &status, &result));
        CHECK(result == 1 && status.code == OMX_SUCCESS);
    }
    RETURNS(omx_isend(e, out, (size_t)1 << 32, self, 0, NULL, &send), OMX_SEGMENTS_BAD_COUNT);
    RETURNS(omx_isend(e, NULL, 5, self, 0, NULL, &send), OMX_SEGMENTS_BAD_COUNT);
    RETURNS(omx_isendv(e, many, 257, self, 0, NULL, &send), OMX_SEGMENTS_BAD_COUNT);
    RETURNS(omx_issendv(e, NULL, 1, self, 0, NULL, &send), OMX_SEGMENTS_BAD_COUNT);
    RETURNS(omx_irecvv(e, many, 257, 0, 0, NULL, &receive), OMX_SEGMENTS_BAD_COUNT);
    RETURNS(omx_irecv(e, in, 1, 2, 1, NULL, &receive), OMX_BAD_MATCH_MASK);
    OK(omx_irecv(e, in, 1, 61, ALL, NULL, &receive));
    OK(omx_cancel(e, &receive, &result));
    CHECK(result == 1 && receive == NULL);
    RETURNS(omx_cancel(e, &receive, &result), OMX_BAD_REQUEST);
    RETURNS(omx_cancel_notest(e, &receive, &result), OMX_BAD_REQUEST);
    RETURNS(omx_test(e, &receive, &status, &result), OMX_BAD_REQUEST);
    RETURNS(omx_wait(e, &receive, &status, &result, 1), OMX_BAD_REQUEST);
    RETURNS(omx_context(&receive, &context), OMX_BAD_REQUEST);
    RETURNS(omx_forget(e, &receive), OMX_BAD_REQUEST);
    /* Truncated: only the status shows it. */
    OK(omx_isend(e, out, 5, self, 62, NULL, &send));
    OK(omx_cancel_notest(e, &send, &result) == OMX_BAD_REQUEST ? OMX_SUCCESS : OMX_BAD_ERROR);
    OK(omx_probe(e, 62, ALL, &status, &result, 0));
    CHECK(result == 1 && status.msg_length == 5);
    OK(omx_iprobe(e, 62, ALL, &status, &result));
    CHECK(result == 1);
    OK(omx_irecv(e, in, 1, 62, ALL, NULL, &receive));
    OK(omx_peek(e, &request, &result, LONG_MS));
    CHECK(result == 1);
    OK(omx_wait_any(e, 62, ALL, &status, &result, LONG_MS));
    CHECK(result == 1 && status.code == OMX_MESSAGE_TRUNCATED && status.xfer_length == 1 && status.msg_length == 5);
    OK(omx_test_any(e, 62, ALL, &status, &result));
    CHECK(result == 1);
    /* The one that is complete longest is seen first, whichever was posted first. */
    OK(omx_irecv(e, in, 1, 64, ALL, NULL, &receive));
    OK(omx_irecv(e, in, 1, 65, ALL, NULL, &later));
    OK(omx_isend(e, out, 1, self, 65, NULL, NULL));
    OK(omx_isend(e, out, 1, self, 64, NULL, NULL));
    for (int i = 0; i < 2; i++) {
        OK(omx_ipeek(e, &request, &result));
        CHECK(result == 1 && request == later);
        OK(omx_peek(e, &request, &result, LONG_MS));
        CHECK(result == 1 && request == later);
    }
    OK(omx_test(e, &later, &status, &result));
    CHECK(result == 1);
    OK(omx_ipeek(e, &request, &result));
    CHECK(result == 1 && request == receive);
    OK(omx_test(e, &receive, &status, &result));
    CHECK(result == 1);
    /* Nothing is left: a time limit of 0 checks once. */
    OK(omx_peek(e, &request, &result, 0));
    CHECK(result == 0);
    OK(omx_wait_any(e, 0, 0, &status, &result, 0));
    CHECK(result == 0);
    RETURNS(omx_probe(e, 3, 1, &status, &result, 0), OMX_BAD_MATCH_MASK);
    RETURNS(omx_iprobe(e, 3, 1, &status, &result), OMX_BAD_MATCH_MASK);
    RETURNS(omx_wait_any(e, 3, 1, &status, &result, 0), OMX_BAD_MATCH_MASK);
    RETURNS(omx_test_any(e, 3, 1, &status, &result), OMX_BAD_MATCH_MASK);
    /* A request is one of its endpoint. */
    OK(omx_irecv(e, in, 1, 63, ALL, NULL, &receive));
    RETURNS(omx_test(other, &receive, &status, &result), OMX_BAD_REQUEST);
    RETURNS(omx_ibuffered(e, &receive, &result), OMX_BAD_REQUEST);
    OK(omx_set_request_timeout(e, receive, 1000));
    OK(omx_set_request_timeout(e, NULL, LONG_MS));
    OK(omx_forget(e, &receive));
    OK(omx_isend(e, NULL, 0, self, 63, NULL, NULL));
    /* Handlers, progress, contexts. */
    context = e;
    OK(omx_register_unexp_handler(e, handled, &context));
    OK(omx_isend(e, "abc", 3, self, 50, NULL, NULL));
    while (context)
        OK(omx_progress(e));
    OK(omx_register_unexp_handler(e, NULL, NULL));
    OK(omx_disable_progression(e));
    OK(omx_reenable_progression(e));
    OK(omx_wakeup(e));
    OK(omx_set_endpoint_addr_context(self, big));
    OK(omx_get_endpoint_addr_context(self, &context));
    CHECK(context == big);
    CHECK(omx_set_error_handler(e, other_handler) == OMX_ERRORS_RETURN);
    RETURNS(omx_irecv(e, in, 1, 2, 1, NULL, &receive), OMX_NOT_IMPLEMENTED);
    CHECK(omx_set_error_handler(e, NULL) == other_handler);
    RETURNS(omx_irecv(e, in, 1, 2, 1, NULL, &receive), OMX_BAD_MATCH_MASK);
    /* An address of another endpoint of this process leads nowhere. */
    OK(omx_get_endpoint_addr(other, &address));
    OK(omx_isend(e, out, 1, address, 1, NULL, &send));
    OK(omx_wait(e, &send, &status, &result, LONG_MS));
    CHECK(result == 1 && status.code == OMX_REMOTE_ENDPOINT_UNREACHABLE);
    OK(omx_decompose_endpoint_addr(address, &nic, &id));
    OK(omx_connect(e, nic, id, 0, LONG_MS, &address));
    OK(omx_disconnect(e, address));
    OK(omx_isend(e, out, 1, address, 1, NULL, &send));
    OK(omx_wait(e, &send, &status, &result, LONG_MS));
    CHECK(result == 1 && status.code != OMX_SUCCESS);
}

static void mx_rest(mx_endpoint_t e)
{
    mx_endpoint_addr_t self;
    mx_request_t send, receive;
    mx_status_t status;
    mx_segment_t segment = {&status, 4};
    uint32_t result = 0;
    OK(mx_get_endpoint_addr(e, &self));
    RETURNS(mx_isend(e, NULL, 1, self, 0, NULL, &send), MX_BAD_SEG_LIST);
    RETURNS(mx_irecv(e, NULL, 1, 0, 0, NULL, &receive), MX_BAD_SEG_LIST);
    mx_segment_t nowhere = {NULL, 5};
    RETURNS(mx_isend(e, &nowhere, 1, self, 0, NULL, &send), MX_BAD_SEG_MEM);
    RETURNS(mx_irecv(e, &nowhere, 1, 0, 0, NULL, &receive), MX_BAD_SEG_MEM);
    OK(mx_isend(e, &segment, 1, self, 1, NULL, &send));
    OK(mx_buffered(e, &send, 1, &result));
    CHECK(result == 1);
    OK(mx_irecv(e, &segment, 1, 1, ALL, NULL, &receive));
    RETURNS(mx_buffered(e, &receive, 1, &result), MX_BAD_REQUEST);
    OK(mx_peek(e, LONG_MS, &receive, &result));
    CHECK(result == 1);
    OK(mx_wait_any(e, LONG_MS, 1, ALL, &status, &result));
    OK(mx_wait_any(e, LONG_MS, 1, ALL, &status, &result));
    CHECK(result == 1);
    RETURNS(mx_register_unexp_callback(e, NULL, NULL), MX_FAILURE);
    RETURNS(mx_iput(e, NULL, 0, self, 0, NULL, &send), MX_FAILURE);
    RETURNS(mx_iget(e, NULL, 0, self, 0, NULL, &send), MX_FAILURE);
    CHECK(mx__regcache_clean(&status, sizeof status) == 0);
}

int main(void)
{
    mx_endpoint_t me;
    omx_endpoint_t oe;
    mx_set_error_handler(MX_ERRORS_RETURN);
    omx_set_error_handler(NULL, OMX_ERRORS_RETURN);
    before_init();
    texts();
    boards();
    names();
    opening();
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, 0, NULL, 0, &me));
    OK(omx_open_endpoint(0, OMX_ANY_ENDPOINT, 0, NULL, 0, &oe));
    information(me, oe);
    counters_are_those_of_the_board(me, oe);
    open_mx_calls(oe, (omx_endpoint_t)me);
    cancelled_requests_are_no_errors(oe);
    mx_rest(me);
    OK(mx_close_endpoint(me));
    OK(omx_finalize());
    RETURNS(omx_close_endpoint(oe), OMX_BAD_ENDPOINT);
    puts("api done");
    return 0;
}
