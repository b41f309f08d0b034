/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What MX promises of messages, between two endpoints of this process: battery BOARD BOARD. Compiled with the MX headers, and
 * once more with those that turn MX names into Open-MX calls. */
#include <pthread.h>
#include <stdint.h>

#include "myriexpress.h"
#include "mx_extensions.h"

#include "check.h"

#define KEY 0x77
#define ALL MX_MATCH_MASK_NONE
/* A bound for what must happen; nothing depends on how fast it does. */
#define LONG_MS 20000

static mx_endpoint_t a, b;
/* b as a knows it. */
static mx_endpoint_addr_t to_b;

/* Waits for a request of one endpoint while both make progress. */
static mx_status_t finish(mx_endpoint_t endpoint, mx_request_t *request)
{
    mx_status_t status;
    uint32_t result = 0;
    while (!result) {
        OK(mx_progress(a));
        OK(mx_progress(b));
        OK(mx_test(endpoint, request, &status, &result));
    }
    CHECK(*request == NULL);
    return status;
}

static mx_request_t post_send(mx_endpoint_t from, mx_endpoint_addr_t to, void *data, uint32_t len, uint64_t info)
{
    mx_segment_t segment = {data, len};
    mx_request_t request;
    OK(mx_isend(from, &segment, 1, to, info, (void *)(uintptr_t)(info + 1), &request));
    return request;
}

static mx_request_t post_receive(mx_endpoint_t at, void *data, uint32_t len, uint64_t info, uint64_t mask)
{
    mx_segment_t segment = {data, len};
    mx_request_t request;
    OK(mx_irecv(at, &segment, 1, info, mask, NULL, &request));
    return request;
}

static void *progress_b(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE))
        OK(mx_progress(b));
    return NULL;
}

static mx_endpoint_addr_t connect_to_b(uint32_t board_b, uint32_t key, mx_return_t expected)
{
    mx_endpoint_addr_t address;
    uint64_t nic;
    uint32_t id;
    int stop = 0;
    pthread_t thread;
    OK(mx_board_number_to_nic_id(board_b, &nic));
    OK(mx_get_endpoint_addr(b, &address));
    OK(mx_decompose_endpoint_addr(address, &nic, &id));
    CHECK(!pthread_create(&thread, NULL, progress_b, &stop));
    RETURNS(mx_connect(a, nic, id, key, LONG_MS, &address), expected);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    return address;
}

static void every_length_expected_and_unexpected(void)
{
    static const uint32_t lengths[] = {0, 1, 32, 33, 128, 129, 4096, 4097, 32768, 32769, 300000, 2 << 20};
    unsigned char *out = malloc(2 << 20), *in = malloc(2 << 20);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t len = lengths[i];
        for (int expected = 0; expected < 2; expected++) {
            mx_request_t receive = NULL;
            mx_status_t status;
            uint32_t result = 0;
            void *context = NULL;
            fill(out, len, (unsigned)i);
            memset(in, 0, len);
            if (expected)
                receive = post_receive(b, in, len, 5, ALL);
            mx_request_t send = post_send(a, to_b, out, len, 5);
            OK(mx_context(&send, &context));
            CHECK(context == (void *)6);
            if (!expected) {
                while (!result) {
                    OK(mx_progress(a));
                    OK(mx_iprobe(b, 5, ALL, &status, &result));
                }
                CHECK(status.msg_length == len && status.xfer_length == len && status.match_info == 5);
                receive = post_receive(b, in, len, 5, ALL);
            }
            status = finish(b, &receive);
            CHECK(status.code == MX_STATUS_SUCCESS && status.msg_length == len && status.xfer_length == len);
            CHECK(filled(in, len, (unsigned)i));
            status = finish(a, &send);
            CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == len && status.context == (void *)6);
            CHECK(!memcmp(&status.source, &to_b, sizeof to_b));
        }
    }
    free(out);
    free(in);
}

static void ping_pong_and_answers_to_where_they_came_from(void)
{
    uint64_t ping = 0, pong = 0;
    for (uint64_t round = 1; round <= 200; round++) {
        mx_request_t receive = post_receive(b, &ping, sizeof ping, 1, ALL), back = post_receive(a, &pong, sizeof pong, 2, ALL);
        mx_request_t send = post_send(a, to_b, &round, sizeof round, 1);
        mx_status_t status = finish(b, &receive);
        finish(a, &send);
        CHECK(ping == round);
        send = post_send(b, status.source, &ping, sizeof ping, 2);
        finish(a, &back);
        finish(b, &send);
        CHECK(pong == round);
    }
}

static void a_stream_arrives_in_order_whoever_takes_it(void)
{
    enum { COUNT = 500 };
    static uint32_t numbers[COUNT];
    mx_status_t status;
    uint32_t result, number;
    for (uint32_t i = 0; i < COUNT; i++) {
        mx_segment_t segment = {&numbers[i], sizeof numbers[i]};
        numbers[i] = i;
        /* Without a place for the request nobody takes its completion. */
        OK(mx_isend(a, &segment, 1, to_b, 9, NULL, NULL));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        mx_segment_t segment = {&number, sizeof number};
        mx_request_t request;
        OK(mx_irecv(b, &segment, 1, 0, 0, &number, &request));
        do {
            OK(mx_progress(a));
            OK(mx_test_any(b, 9, ALL, &status, &result));
        } while (!result);
        CHECK(number == i && status.context == &number && status.match_info == 9);
    }
}

static void vectors_of_256_segments(void)
{
    static unsigned char out[256 * 40], in[256 * 40];
    mx_segment_t from[MX_MAX_SEGMENTS + 1], to[MX_MAX_SEGMENTS];
    mx_request_t send, receive;
    /* Different cuts on both sides, with empty pieces; long enough to be announced once, short once. */
    for (uint32_t piece = 1; piece <= 40; piece += 39) {
        uint32_t at = 0, total = piece * 256;
        fill(out, total, piece);
        memset(in, 0, sizeof in);
        for (int i = 0; i < MX_MAX_SEGMENTS; i++) {
            from[i].segment_ptr = out + i * piece;
            from[i].segment_length = piece;
            uint32_t len = i == MX_MAX_SEGMENTS - 1 ? total - at : i % 3 ? total / 256 : 0;
            to[i].segment_ptr = in + at;
            to[i].segment_length = len;
            at += len;
        }
        CHECK(at == total);
        from[MX_MAX_SEGMENTS] = from[0];
        for (int synchronous = 0; synchronous < 2; synchronous++) {
            OK(mx_irecv(b, to, MX_MAX_SEGMENTS, 3, ALL, NULL, &receive));
            OK((synchronous ? mx_issend : mx_isend)(a, from, MX_MAX_SEGMENTS, to_b, 3, NULL, &send));
            mx_status_t status = finish(b, &receive);
            CHECK(status.xfer_length == total && filled(in, total, piece));
            finish(a, &send);
        }
    }
    RETURNS(mx_isend(a, from, MX_MAX_SEGMENTS + 1, to_b, 3, NULL, &send), MX_BAD_SEG_CNT);
    RETURNS(mx_issend(a, from, MX_MAX_SEGMENTS + 1, to_b, 3, NULL, &send), MX_BAD_SEG_CNT);
    RETURNS(mx_irecv(b, from, MX_MAX_SEGMENTS + 1, 3, ALL, NULL, &receive), MX_BAD_SEG_CNT);
    /* No segments at all: an empty message. */
    OK(mx_irecv(b, NULL, 0, 3, ALL, NULL, &receive));
    OK(mx_isend(a, NULL, 0, to_b, 3, NULL, &send));
    CHECK(finish(b, &receive).msg_length == 0);
    finish(a, &send);
}

static void truncation_says_what_was_lost(void)
{
    static unsigned char out[100000], in[100];
    static const uint32_t lengths[] = {101, 1000, 100000};
    for (int i = 0; i < 3; i++) {
        fill(out, lengths[i], 4);
        mx_request_t receive = post_receive(b, in, sizeof in, 4, ALL);
        mx_request_t send = post_send(a, to_b, out, lengths[i], 4);
        mx_status_t status = finish(b, &receive);
        CHECK(status.code == MX_STATUS_TRUNCATED && status.msg_length == lengths[i] && status.xfer_length == 100);
        CHECK(filled(in, 100, 4));
        status = finish(a, &send);
        if (lengths[i] == 100000)
            CHECK(status.code == MX_STATUS_TRUNCATED && status.xfer_length == 100);
        else
            CHECK(status.code == MX_STATUS_SUCCESS);
    }
}

static void cancel_takes_back_what_has_no_message(void)
{
    char in[8], out[8] = "message";
    uint32_t result;
    mx_request_t receive = post_receive(b, in, sizeof in, 6, ALL);
    OK(mx_cancel(b, &receive, &result));
    CHECK(result == 1 && receive == NULL);
    receive = post_receive(b, in, sizeof in, 6, ALL);
    mx_request_t send = post_send(a, to_b, out, sizeof out, 6), peeked = NULL;
    do {
        OK(mx_progress(a));
        OK(mx_ipeek(b, &peeked, &result));
    } while (!result);
    CHECK(peeked == receive);
    OK(mx_cancel(b, &receive, &result));
    CHECK(result == 0 && receive == peeked);
    RETURNS(mx_cancel(a, &send, &result), MX_BAD_REQUEST);
    finish(b, &receive);
    finish(a, &send);
    CHECK(!strcmp(in, "message"));
    RETURNS(mx_cancel(b, &receive, &result), MX_BAD_REQUEST);
}

static void forgotten_requests_are_over_for_the_program(void)
{
    static unsigned char out[50000], in[50000];
    mx_request_t receive = post_receive(b, in, sizeof in, 7, ALL), send, later;
    uint32_t result;
    fill(out, sizeof out, 7);
    send = post_send(a, to_b, out, sizeof out, 7);
    OK(mx_forget(a, &send));
    CHECK(send == NULL);
    OK(mx_forget(b, &receive));
    /* What was sent behind it has arrived behind it. */
    later = post_receive(b, in, 1, 8, ALL);
    send = post_send(a, to_b, out, 1, 8);
    finish(b, &later);
    finish(a, &send);
    while (in[49999] != out[49999]) {
        OK(mx_progress(a));
        OK(mx_progress(b));
    }
    OK(mx_ipeek(b, &later, &result));
    CHECK(!result);
}

static void buffered_says_whether_the_bytes_are_safe(void)
{
    static unsigned char big[200000];
    uint32_t result = 7;
    mx_request_t send = post_send(a, to_b, big, 8, 11), large, receive;
    OK(mx_ibuffered(a, &send, &result));
    CHECK(result == 1);
    large = post_send(a, to_b, big, sizeof big, 12);
    OK(mx_ibuffered(a, &large, &result));
    CHECK(result == 0);
    receive = post_receive(b, big, sizeof big, 11, ALL);
    RETURNS(mx_ibuffered(b, &receive, &result), MX_BAD_REQUEST);
    finish(b, &receive);
    receive = post_receive(b, big, sizeof big, 12, ALL);
    finish(b, &receive);
    finish(a, &send);
    finish(a, &large);
}

struct seen {
    int calls;
    mx_unexp_handler_action_t answer;
    uint32_t length;
    uint64_t info;
    int has_data;
    mx_request_t posted;
    unsigned char data[64];
    mx_endpoint_addr_t address;
};

static mx_unexp_handler_action_t handler(void *context, mx_endpoint_addr_t from, uint64_t info, uint32_t length, void *data)
{
    struct seen *seen = context;
    seen->calls++;
    seen->address = from;
    seen->length = length;
    seen->info = info;
    seen->has_data = data != NULL;
    if (data && length <= sizeof seen->data)
        memcpy(seen->data, data, length);
    RETURNS(mx_close_endpoint(b), MX_CLOSE_IN_HANDLER);
    if (info == 21) {
        mx_segment_t segment = {seen->data, sizeof seen->data};
        OK(mx_irecv(b, &segment, 1, 21, ALL, NULL, &seen->posted));
    }
    return seen->answer;
}

static void the_unexpected_handler_sees_what_nobody_waits_for(void)
{
    static unsigned char out[100000];
    struct seen seen = {.answer = MX_RECV_FINISHED};
    mx_status_t status;
    uint32_t result;
    fill(out, sizeof out, 3);
    OK(mx_register_unexp_handler(b, handler, &seen));
    mx_request_t send = post_send(a, to_b, out, 20, 20);
    while (!seen.calls) {
        OK(mx_progress(a));
        OK(mx_progress(b));
    }
    finish(a, &send);
    CHECK(seen.length == 20 && seen.info == 20 && seen.has_data && filled(seen.data, 20, 3));
    /* Consumed: nobody finds it any more. The address it came from can be used. */
    OK(mx_iprobe(b, 0, 0, &status, &result));
    CHECK(!result);
    mx_request_t back = post_receive(a, out, 5, 1, ALL), answer = post_send(b, seen.address, "back", 5, 1);
    finish(a, &back);
    finish(b, &answer);
    CHECK(!strcmp((char *)out, "back"));
    fill(out, sizeof out, 3);
    /* A large message that is consumed ends as truncated at its sender. */
    send = post_send(a, to_b, out, sizeof out, 22);
    status = finish(a, &send);
    CHECK(seen.calls == 2 && !seen.has_data && seen.length == sizeof out);
    CHECK(status.code == MX_STATUS_TRUNCATED && status.xfer_length == 0);
    /* What the handler posted takes the message. */
    seen.answer = MX_RECV_CONTINUE;
    send = post_send(a, to_b, out, 30, 21);
    while (seen.calls < 3)
        OK(mx_progress(b));
    status = finish(b, &seen.posted);
    CHECK(status.xfer_length == 30 && filled(seen.data, 30, 3));
    finish(a, &send);
    /* Posted receives are not shown. */
    back = post_receive(b, out, 5, 1, ALL);
    send = post_send(a, to_b, out, 5, 1);
    finish(b, &back);
    finish(a, &send);
    CHECK(seen.calls == 3);
    OK(mx_register_unexp_handler(b, NULL, NULL));
}

static void *blocked_wait(void *out)
{
    mx_status_t status;
    uint32_t result = 7;
    OK(mx_wait_any(b, MX_INFINITE, 99, ALL, &status, &result));
    *(uint32_t *)out = result;
    return NULL;
}

static void wakeup_ends_waits_and_time_limits_do(void)
{
    mx_status_t status;
    uint32_t result = 7, woken = 7;
    mx_request_t request = NULL;
    char in[4];
    OK(mx_wait_any(b, 1, 99, ALL, &status, &result));
    CHECK(result == 0);
    OK(mx_probe(b, 1, 99, ALL, &status, &result));
    CHECK(result == 0);
    OK(mx_peek(b, 1, &request, &result));
    CHECK(result == 0);
    request = post_receive(b, in, sizeof in, 99, ALL);
    OK(mx_wait(b, &request, 1, &status, &result));
    CHECK(result == 0 && request != NULL);
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, blocked_wait, &woken));
    /* A wakeup with nobody asleep is lost: so until the thread says that it woke up. */
    while (__atomic_load_n(&woken, __ATOMIC_ACQUIRE) == 7)
        OK(mx_wakeup(b));
    pthread_join(thread, NULL);
    CHECK(woken == 0);
    OK(mx_cancel(b, &request, &result));
    CHECK(result == 1);
}

static void *waits_for_its_own(void *argument)
{
    uint64_t info = (uintptr_t)argument;
    uint32_t number, result = 0;
    mx_segment_t segment = {&number, sizeof number};
    for (uint32_t i = 0; i < 50; i++) {
        mx_request_t request;
        mx_status_t status;
        OK(mx_irecv(b, &segment, 1, info, ALL, NULL, &request));
        OK(mx_wait(b, &request, MX_INFINITE, &status, &result));
        CHECK(result == 1 && number == i && status.match_info == info);
    }
    return NULL;
}

static void *sends_its_own(void *argument)
{
    uint64_t info = (uintptr_t)argument;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 50; i++) {
        mx_segment_t segment = {&i, sizeof i};
        mx_request_t request;
        mx_status_t status;
        OK((i % 2 ? mx_issend : mx_isend)(a, &segment, 1, to_b, info, NULL, &request));
        OK(mx_wait(a, &request, MX_INFINITE, &status, &result));
        CHECK(result == 1);
    }
    return NULL;
}

static void threads_share_an_endpoint(void)
{
    pthread_t threads[6];
    for (uintptr_t i = 0; i < 3; i++) {
        CHECK(!pthread_create(&threads[i], NULL, waits_for_its_own, (void *)(100 + i)));
        CHECK(!pthread_create(&threads[3 + i], NULL, sends_its_own, (void *)(100 + i)));
    }
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
}

static void messages_to_oneself_match_like_any_other(void)
{
    mx_endpoint_addr_t self, connected;
    unsigned char out[50], in[50];
    uint64_t nic;
    uint32_t id, result;
    OK(mx_get_endpoint_addr(b, &self));
    OK(mx_decompose_endpoint_addr(self, &nic, &id));
    OK(mx_connect(b, nic, id, KEY, LONG_MS, &connected));
    CHECK(!memcmp(&self, &connected, sizeof self));
    fill(out, sizeof out, 1);
    mx_request_t send = post_send(b, self, out, sizeof out, 31);
    OK(mx_ibuffered(b, &send, &result));
    CHECK(result == 1);
    mx_status_t status;
    OK(mx_test(b, &send, &status, &result));
    CHECK(result == 0);
    mx_request_t receive = post_receive(b, in, sizeof in, 31, ALL);
    status = finish(b, &receive);
    CHECK(filled(in, sizeof in, 1) && !memcmp(&status.source, &self, sizeof self));
    finish(b, &send);
}

static void masks_are_checked(void)
{
    mx_status_t status;
    uint32_t result;
    mx_request_t request;
    RETURNS(mx_irecv(b, NULL, 0, 3, 1, NULL, &request), MX_BAD_MATCH_MASK);
    RETURNS(mx_test_any(b, 3, 1, &status, &result), MX_BAD_MATCH_MASK);
    RETURNS(mx_wait_any(b, 1, 3, 1, &status, &result), MX_BAD_MATCH_MASK);
    RETURNS(mx_iprobe(b, 3, 1, &status, &result), MX_BAD_MATCH_MASK);
    RETURNS(mx_probe(b, 1, 3, 1, &status, &result), MX_BAD_MATCH_MASK);
}

static void addresses_carry_pointers(void)
{
    void *context = &context;
    OK(mx_get_endpoint_addr_context(to_b, &context));
    CHECK(context == NULL);
    OK(mx_set_endpoint_addr_context(to_b, &context));
    mx_request_t receive = post_receive(b, NULL, 0, 1, ALL), send = post_send(a, to_b, NULL, 0, 1);
    mx_status_t status = finish(a, &send);
    finish(b, &receive);
    OK(mx_get_endpoint_addr_context(status.source, &context));
    CHECK(context == &context);
    OK(mx_set_endpoint_addr_context(to_b, NULL));
    OK(mx_get_endpoint_addr_context(to_b, &context));
    CHECK(context == NULL);
}

static void progression_can_be_switched_off(void)
{
    char in[4];
    mx_status_t status;
    uint32_t result;
    mx_request_t receive = post_receive(b, in, sizeof in, 41, ALL);
    OK(mx_disable_progression(b));
    OK(mx_disable_progression(b));
    mx_request_t send = post_send(a, to_b, "off", 4, 41);
    for (int i = 0; i < 200; i++) {
        OK(mx_progress(a));
        OK(mx_progress(b));
    }
    OK(mx_test(b, &receive, &status, &result));
    CHECK(result == 0);
    OK(mx_reenable_progression(b));
    finish(b, &receive);
    finish(a, &send);
}

static void connections_end_in_every_way(uint32_t board_b)
{
    mx_endpoint_addr_t address, again;
    mx_request_t request;
    uint64_t nic;
    uint32_t id, session, result;
    int stop = 0;
    OK(mx_decompose_endpoint_addr2(to_b, &nic, &id, &session));
    connect_to_b(board_b, KEY + 1, MX_BAD_CONNECTION_KEY);
    again = connect_to_b(board_b, KEY, MX_SUCCESS);
    CHECK(!memcmp(&again, &to_b, sizeof again));
    RETURNS(mx_connect(a, nic, 31, KEY, LONG_MS, &address), MX_CONNECTION_FAILED);
    RETURNS(mx_connect(a, nic, 77, KEY, LONG_MS, &address), MX_BAD_ENDPOINT_ID);
    RETURNS(mx_connect(a, nic, 7777, KEY, LONG_MS, &address), MX_BAD_ENDPOINT_ID);
    RETURNS(mx_connect(a, UINT64_MAX, 0, KEY, LONG_MS, &address), MX_NIC_NOT_FOUND);
    RETURNS(mx_iconnect(a, UINT64_MAX, 0, KEY, 1, NULL, &request), MX_NIC_NOT_FOUND);
    /* A host that does not exist. */
    RETURNS(mx_connect(a, 0x020000fffffeULL, 0, KEY, 5, &address), MX_TIMEOUT);
    OK(mx_iconnect(a, 0x020000fffffeULL, 0, KEY, 1, NULL, &request));
    OK(mx_cancel(a, &request, &result));
    CHECK(result == 1 && request == NULL);
    OK(mx_iconnect(a, nic, id, KEY, 0x55, &stop, &request));
    mx_status_t status = finish(a, &request);
    CHECK(status.code == MX_STATUS_SUCCESS && status.match_info == 0x55 && status.context == &stop);
    CHECK(!memcmp(&status.source, &to_b, sizeof to_b));
    OK(mx_iconnect(a, nic, 31, KEY, 0x56, NULL, &request));
    CHECK(finish(a, &request).code == MX_STATUS_ENDPOINT_CLOSED);
    OK(mx_set_request_timeout(a, NULL, LONG_MS));
    /* After a disconnect the address is no address any more. */
    OK(mx_disconnect(a, to_b));
    request = post_send(a, to_b, &stop, sizeof stop, 1);
    CHECK(finish(a, &request).code != MX_STATUS_SUCCESS);
    to_b = connect_to_b(board_b, KEY, MX_SUCCESS);
}

static void context_ids_select_and_restrict(uint32_t board)
{
    mx_endpoint_t c;
    mx_endpoint_addr_t self;
    mx_param_t param = {.key = MX_PARAM_CONTEXT_ID};
    mx_status_t status;
    mx_request_t request, send;
    uint32_t result, in = 0, out = 17;
    mx_segment_t segment = {&in, sizeof in}, from = {&out, sizeof out};
    uint64_t one = (uint64_t)1 << 60;
    param.val.context_id.bits = 17;
    param.val.context_id.shift = 0;
    RETURNS(mx_open_endpoint(board, MX_ANY_ENDPOINT, KEY, &param, 1, &c), MX_BAD_PARAM_VAL);
    param.val.context_id.bits = 4;
    param.val.context_id.shift = 61;
    RETURNS(mx_open_endpoint(board, MX_ANY_ENDPOINT, KEY, &param, 1, &c), MX_BAD_PARAM_VAL);
    param.val.context_id.shift = 60;
    OK(mx_open_endpoint(board, MX_ANY_ENDPOINT, KEY, &param, 1, &c));
    RETURNS(mx_irecv(c, &segment, 1, 0, 0, NULL, &request), MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK);
    OK(mx_get_endpoint_addr(c, &self));
    OK(mx_isend(c, &from, 1, self, one | 3, NULL, &send));
    OK(mx_iprobe(c, 3, 0xff, &status, &result));
    CHECK(result == 1 && status.match_info == (one | 3));
    OK(mx_irecv(c, &segment, 1, one, (uint64_t)0xf << 60, NULL, &request));
    OK(mx_test_any(c, 3, 0xff, &status, &result));
    CHECK(result == 1);
    OK(mx_test_any(c, 3, 0xff, &status, &result));
    CHECK(result == 1 && in == 17);
    OK(mx_close_endpoint(c));
}

static mx_return_t seen_code;

static mx_return_t note(char *text, mx_return_t code)
{
    CHECK(text != NULL && *text);
    seen_code = code;
    return code;
}

static mx_return_t change(char *text, mx_return_t code)
{
    (void)text;
    (void)code;
    return MX_BAD_NIC;
}

static void errors_pass_the_handlers(uint32_t board)
{
    mx_endpoint_t c;
    mx_request_t request;
    mx_status_t status;
    uint32_t result;
    mx_param_t param = {.key = MX_PARAM_ERROR_HANDLER};
    mx_endpoint_addr_t self;
    char in[1];
    mx_segment_t segment = {in, 1}, from = {"ab", 2};
    CHECK(mx_set_error_handler(note) == MX_ERRORS_RETURN);
    RETURNS(mx_irecv(b, NULL, 0, 3, 1, NULL, &request), MX_BAD_MATCH_MASK);
    CHECK(seen_code == MX_BAD_MATCH_MASK);
    param.val.error_handler = change;
    OK(mx_open_endpoint(board, MX_ANY_ENDPOINT, KEY, &param, 1, &c));
    seen_code = MX_SUCCESS;
    RETURNS(mx_irecv(c, NULL, 0, 3, 1, NULL, &request), MX_BAD_NIC);
    CHECK(seen_code == MX_SUCCESS);
    /* A request that failed: the status gets what the handler says. */
    OK(mx_get_endpoint_addr(c, &self));
    OK(mx_irecv(c, &segment, 1, 1, ALL, NULL, &request));
    OK(mx_isend(c, &from, 1, self, 1, NULL, NULL));
    OK(mx_wait(c, &request, MX_INFINITE, &status, &result));
    CHECK(result == 1 && (unsigned)status.code == (unsigned)MX_BAD_NIC);
    OK(mx_close_endpoint(c));
    RETURNS(mx_close_endpoint(c), MX_BAD_ENDPOINT);
    CHECK(seen_code == MX_BAD_ENDPOINT);
    CHECK(mx_set_error_handler(MX_ERRORS_RETURN) == note);
}

int main(int argc, char **argv)
{
    uint32_t board_a, board_b;
    CHECK(argc == 3);
    board_a = (uint32_t)atoi(argv[1]);
    board_b = (uint32_t)atoi(argv[2]);
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(board_a, MX_ANY_ENDPOINT, KEY, NULL, 0, &a));
    OK(mx_open_endpoint(board_b, MX_ANY_ENDPOINT, KEY, NULL, 0, &b));
    to_b = connect_to_b(board_b, KEY, MX_SUCCESS);
    every_length_expected_and_unexpected();
    ping_pong_and_answers_to_where_they_came_from();
    a_stream_arrives_in_order_whoever_takes_it();
    vectors_of_256_segments();
    truncation_says_what_was_lost();
    cancel_takes_back_what_has_no_message();
    forgotten_requests_are_over_for_the_program();
    buffered_says_whether_the_bytes_are_safe();
    the_unexpected_handler_sees_what_nobody_waits_for();
    wakeup_ends_waits_and_time_limits_do();
    threads_share_an_endpoint();
    messages_to_oneself_match_like_any_other();
    masks_are_checked();
    addresses_carry_pointers();
    progression_can_be_switched_off();
    context_ids_select_and_restrict(board_a);
    errors_pass_the_handlers(board_a);
    connections_end_in_every_way(board_b);
    OK(mx_close_endpoint(a));
    OK(mx_close_endpoint(b));
    OK(mx_finalize());
    RETURNS(mx_finalize(), MX_NOT_INITIALIZED);
    OK(mx_init());
    OK(mx_finalize());
    puts("battery done");
    return 0;
}
