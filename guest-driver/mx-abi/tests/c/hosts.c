/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What MX promises, between two processes, which may be on two hosts: `hosts` opens endpoint 0 of board 0, says its address and
 * answers one partner; `hosts ADDRESS` is that partner. Both do the same steps; `asking` tells which side does what. Compiled with
 * the MX headers, and once more with those that turn MX names into Open-MX calls. */
#include <pthread.h>
#include <stdint.h>

#include "myriexpress.h"
#include "mx_extensions.h"

#include "check.h"

#define KEY 0x77
#define ALL MX_MATCH_MASK_NONE
/* A bound for what must happen; nothing depends on how fast it does. */
#define LONG_MS 60000
/* Match information that no step uses for its messages. */
#define BARRIER ((uint64_t)0xba << 56)

static mx_endpoint_t e;
static mx_endpoint_addr_t peer;
static int asking;
static unsigned char out[8 << 20], in[8 << 20];

static mx_status_t finish(mx_request_t *request)
{
    mx_status_t status;
    uint32_t result;
    OK(mx_wait(e, request, LONG_MS, &status, &result));
    CHECK(result == 1 && *request == NULL);
    return status;
}

static mx_request_t post_send(mx_endpoint_addr_t to, void *data, uint32_t len, uint64_t info)
{
    mx_segment_t segment = {data, len};
    mx_request_t request;
    OK(mx_isend(e, &segment, 1, to, info, NULL, &request));
    return request;
}

static mx_request_t post_receive(void *data, uint32_t len, uint64_t info, uint64_t mask)
{
    mx_segment_t segment = {data, len};
    mx_request_t request;
    OK(mx_irecv(e, &segment, 1, info, mask, NULL, &request));
    return request;
}

static void send(void *data, uint32_t len, uint64_t info)
{
    mx_request_t request = post_send(peer, data, len, info);
    CHECK(finish(&request).code == MX_STATUS_SUCCESS);
}

static mx_status_t receive(void *data, uint32_t len, uint64_t info)
{
    mx_request_t request = post_receive(data, len, info, ALL);
    return finish(&request);
}

/* Both sides are here. */
static void rendezvous(void)
{
    mx_request_t request = post_receive(NULL, 0, BARRIER, ALL);
    send(NULL, 0, BARRIER);
    finish(&request);
}

static void every_length_expected_and_unexpected(void)
{
    static const uint32_t lengths[] = {0, 1, 32, 33, 128, 129, 4096, 4097, 32768, 32769, 300000, 1 << 20, 8 << 20};
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t len = lengths[i], result;
        for (int expected = 0; expected < 2; expected++) {
            mx_request_t request;
            mx_status_t status;
            if (asking) {
                fill(out, len, i);
                if (expected)
                    rendezvous();
                request = post_send(peer, out, len, 5);
                status = finish(&request);
                CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == len);
                CHECK(!memcmp(&status.source, &peer, sizeof peer));
            } else {
                memset(in, 0, len);
                if (expected) {
                    request = post_receive(in, len, 5, ALL);
                    rendezvous();
                } else {
                    OK(mx_probe(e, LONG_MS, 5, ALL, &status, &result));
                    CHECK(result == 1 && status.msg_length == len && status.match_info == 5);
                    request = post_receive(in, len, 5, ALL);
                }
                status = finish(&request);
                CHECK(status.code == MX_STATUS_SUCCESS && status.msg_length == len && status.xfer_length == len);
                CHECK(filled(in, len, i));
            }
        }
    }
}

static void ping_pong(void)
{
    for (uint64_t round = 1; round <= 200; round++) {
        uint64_t number = round;
        if (asking)
            send(&number, sizeof number, 1);
        number = 0;
        mx_status_t status = receive(&number, sizeof number, 1);
        CHECK(number == round && status.xfer_length == sizeof number);
        if (!asking) {
            mx_request_t back = post_send(status.source, &number, sizeof number, 1);
            finish(&back);
        }
    }
}

/* Messages of all kinds in both directions at once; each arrives once, in the order in which it was sent, whichever side takes it. */
static void streams_cross(void)
{
    enum { COUNT = 210, LONGEST = 50000 };
    static uint32_t sent[COUNT][1 + LONGEST / 4];
    static const uint32_t lengths[] = {4, 32, 128, 5000, 4, 32768, LONGEST};
    mx_status_t status;
    uint32_t result;
    rendezvous();
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t len = lengths[i % 7];
        fill((unsigned char *)sent[i], len, i);
        sent[i][0] = i;
        mx_segment_t segment = {sent[i], len};
        /* Without a place for the request its completion is not taken. */
        OK(mx_isend(e, &segment, 1, peer, 9, NULL, NULL));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        static uint32_t got[1 + LONGEST / 4];
        mx_segment_t segment = {got, sizeof got};
        mx_request_t request;
        /* Of any source, with any match information; taken by a wait for whatever comes. */
        OK(mx_irecv(e, &segment, 1, 0, 0, got, &request));
        OK(mx_wait_any(e, LONG_MS, 9, ALL, &status, &result));
        CHECK(result == 1 && status.code == MX_STATUS_SUCCESS && status.context == got);
        CHECK(status.xfer_length == lengths[i % 7] && got[0] == i);
        fill((unsigned char *)&result, 4, i);
        got[0] = result;
        CHECK(filled((unsigned char *)got, status.xfer_length, i));
    }
    /* The partner has all of them before the buffers are used again. */
    rendezvous();
    OK(mx_iprobe(e, 9, ALL, &status, &result));
    CHECK(result == 0);
}

static void vectors_of_256_segments(void)
{
    mx_segment_t pieces[MX_MAX_SEGMENTS];
    mx_request_t request;
    /* Different cuts on both sides, with empty pieces; long enough to be announced once, short once. */
    for (uint32_t piece = 1; piece <= 401; piece += 400) {
        uint32_t at = 0, total = piece * MX_MAX_SEGMENTS;
        for (int i = 0; i < MX_MAX_SEGMENTS; i++) {
            uint32_t len = asking ? piece : i == MX_MAX_SEGMENTS - 1 ? total - at : i % 3 ? piece : 0;
            pieces[i].segment_ptr = (asking ? out : in) + at;
            pieces[i].segment_length = len;
            at += len;
        }
        CHECK(at == total);
        if (asking) {
            fill(out, total, piece);
            OK(mx_issend(e, pieces, MX_MAX_SEGMENTS, peer, 3, NULL, &request));
            CHECK(finish(&request).xfer_length == total);
        } else {
            memset(in, 0, total);
            OK(mx_irecv(e, pieces, MX_MAX_SEGMENTS, 3, ALL, NULL, &request));
            CHECK(finish(&request).xfer_length == total && filled(in, total, piece));
        }
    }
}

static void truncation_says_what_was_lost(void)
{
    static const uint32_t lengths[] = {101, 1000, 100000};
    for (unsigned i = 0; i < 3; i++) {
        uint32_t len = lengths[i];
        if (asking) {
            fill(out, len, 4);
            rendezvous();
            mx_request_t request = post_send(peer, out, len, 4);
            mx_status_t status = finish(&request);
            if (len == 100000)
                CHECK(status.code == MX_STATUS_TRUNCATED && status.xfer_length == 100);
            else
                CHECK(status.code == MX_STATUS_SUCCESS);
        } else {
            mx_request_t request = post_receive(in, 100, 4, ALL);
            rendezvous();
            mx_status_t status = finish(&request);
            CHECK(status.code == MX_STATUS_TRUNCATED && status.msg_length == len && status.xfer_length == 100);
            CHECK(filled(in, 100, 4));
        }
    }
}

static void cancel_takes_back_what_has_no_message(void)
{
    char text[8] = "message";
    mx_request_t request, peeked = NULL;
    uint32_t result;
    if (asking) {
        rendezvous();
        send(text, sizeof text, 6);
        return;
    }
    memset(text, 0, sizeof text);
    request = post_receive(text, sizeof text, 6, ALL);
    OK(mx_cancel(e, &request, &result));
    CHECK(result == 1 && request == NULL);
    request = post_receive(text, sizeof text, 6, ALL);
    rendezvous();
    OK(mx_peek(e, LONG_MS, &peeked, &result));
    CHECK(result == 1 && peeked == request);
    OK(mx_cancel(e, &request, &result));
    CHECK(result == 0 && request == peeked);
    finish(&request);
    CHECK(!strcmp(text, "message"));
}

static void *blocked(void *woken)
{
    mx_status_t status;
    uint32_t result = 7;
    OK(mx_wait_any(e, MX_INFINITE, 99, ALL, &status, &result));
    __atomic_store_n((uint32_t *)woken, result, __ATOMIC_RELEASE);
    return NULL;
}

static void waits_end_by_wakeup_by_time_and_by_a_message(void)
{
    mx_status_t status;
    uint32_t result = 7, woken = 7;
    pthread_t thread;
    if (asking) {
        rendezvous();
        send(NULL, 0, 99);
        return;
    }
    OK(mx_wait_any(e, 1, 99, ALL, &status, &result));
    CHECK(result == 0);
    CHECK(!pthread_create(&thread, NULL, blocked, &woken));
    /* A wakeup without a sleeping thread is lost: so until the thread says that it woke up. */
    while (__atomic_load_n(&woken, __ATOMIC_ACQUIRE) == 7)
        OK(mx_wakeup(e));
    pthread_join(thread, NULL);
    CHECK(woken == 0);
    mx_request_t request = post_receive(NULL, 0, 99, ALL);
    woken = 7;
    CHECK(!pthread_create(&thread, NULL, blocked, &woken));
    rendezvous();
    pthread_join(thread, NULL);
    CHECK(woken == 1);
    (void)request;
}

static struct {
    int calls;
    mx_unexp_handler_action_t answer;
    uint32_t length;
    int has_data;
    unsigned char data[64];
    mx_endpoint_addr_t address;
    mx_request_t posted;
} seen;

static mx_unexp_handler_action_t handler(void *context, mx_endpoint_addr_t from, uint64_t info, uint32_t length, void *data)
{
    CHECK(context == &seen);
    /* The messages of the rendezvous do not count. */
    if (info == BARRIER)
        return MX_RECV_CONTINUE;
    seen.address = from;
    seen.length = length;
    seen.has_data = data != NULL;
    if (data && length <= sizeof seen.data)
        memcpy(seen.data, data, length);
    if (info == 21) {
        mx_segment_t segment = {seen.data, sizeof seen.data};
        OK(mx_irecv(e, &segment, 1, 21, ALL, NULL, &seen.posted));
    }
    __atomic_add_fetch(&seen.calls, 1, __ATOMIC_RELEASE);
    return seen.answer;
}

static void called(int times)
{
    while (__atomic_load_n(&seen.calls, __ATOMIC_ACQUIRE) < times)
        OK(mx_progress(e));
}

static void the_unexpected_handler_sees_what_nobody_waits_for(void)
{
    mx_request_t request;
    mx_status_t status;
    uint32_t result;
    if (asking) {
        fill(out, 100000, 3);
        rendezvous();
        request = post_receive(in, 5, 1, ALL);
        send(out, 20, 20);
        finish(&request);
        CHECK(!strcmp((char *)in, "back"));
        /* A large message that is consumed ends as truncated at its sender. */
        request = post_send(peer, out, 100000, 22);
        status = finish(&request);
        CHECK(status.code == MX_STATUS_TRUNCATED && status.xfer_length == 0);
        rendezvous();
        send(out, 30, 21);
    } else {
        seen.answer = MX_RECV_FINISHED;
        OK(mx_register_unexp_handler(e, handler, &seen));
        rendezvous();
        called(1);
        CHECK(seen.length == 20 && seen.has_data && filled(seen.data, 20, 3));
        /* Consumed: it is not found any more. The address it came from can be used. */
        OK(mx_iprobe(e, 20, ALL, &status, &result));
        CHECK(!result);
        request = post_send(seen.address, "back", 5, 1);
        finish(&request);
        called(2);
        CHECK(!seen.has_data && seen.length == 100000);
        /* What the handler posts takes the message. */
        seen.answer = MX_RECV_CONTINUE;
        rendezvous();
        called(3);
        status = finish(&seen.posted);
        CHECK(status.xfer_length == 30 && filled(seen.data, 30, 3));
        OK(mx_register_unexp_handler(e, NULL, NULL));
    }
    rendezvous();
}

static void *one_of_many(void *argument)
{
    uint64_t info = (uintptr_t)argument;
    for (uint32_t i = 0; i < 50; i++) {
        uint32_t number = i, result;
        mx_segment_t segment = {&number, sizeof number};
        mx_request_t request;
        mx_status_t status;
        if (asking) {
            OK((i % 2 ? mx_issend : mx_isend)(e, &segment, 1, peer, info, NULL, &request));
        } else {
            number = UINT32_MAX;
            OK(mx_irecv(e, &segment, 1, info, ALL, NULL, &request));
        }
        OK(mx_wait(e, &request, MX_INFINITE, &status, &result));
        CHECK(result == 1 && number == i && status.match_info == info);
    }
    return NULL;
}

static void threads_share_an_endpoint(void)
{
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(!pthread_create(&threads[i], NULL, one_of_many, (void *)(100 + i)));
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

static void messages_to_oneself_match_like_any_other(void)
{
    mx_endpoint_addr_t self;
    mx_status_t status;
    OK(mx_get_endpoint_addr(e, &self));
    fill(out, 50, 1);
    mx_request_t request = post_send(self, out, 50, 31), taken = post_receive(in, 50, 31, ALL);
    status = finish(&taken);
    CHECK(filled(in, 50, 1) && !memcmp(&status.source, &self, sizeof self));
    finish(&request);
}

static void connections_are_refused_with_the_reason(void)
{
    mx_endpoint_addr_t address;
    uint64_t nic;
    uint32_t id;
    OK(mx_decompose_endpoint_addr(peer, &nic, &id));
    RETURNS(mx_connect(e, nic, id, KEY + 1, LONG_MS, &address), MX_BAD_CONNECTION_KEY);
    RETURNS(mx_connect(e, nic, 31, KEY, LONG_MS, &address), MX_CONNECTION_FAILED);
    OK(mx_connect(e, nic, id, KEY, LONG_MS, &address));
    CHECK(!memcmp(&address, &peer, sizeof peer));
    /* A host that does not exist. */
    RETURNS(mx_connect(e, 0x020000fffffeULL, 0, KEY, 5, &address), MX_TIMEOUT);
}

/* Closing an endpoint leaves what is in flight to its fate. So the one who asks ends when the other has everything, and the other
 * one stays a while: an acknowledgement that was lost can be asked for again. */
static void farewell(void)
{
    enum { STAY_MS = 1000 };
    mx_status_t status;
    mx_request_t request;
    uint32_t result;
    if (asking) {
        OK(mx_issend(e, NULL, 0, peer, BARRIER, NULL, &request));
        finish(&request);
    } else {
        receive(NULL, 0, BARRIER);
        OK(mx_wait_any(e, STAY_MS, 99, ALL, &status, &result));
    }
}

int main(int argc, char **argv)
{
    uint64_t nic;
    asking = argc > 1;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, asking ? MX_ANY_ENDPOINT : 0, KEY, NULL, 0, &e));
    OK(mx_board_number_to_nic_id(0, &nic));
    if (asking) {
        OK(mx_connect(e, strtoull(argv[1], NULL, 16), 0, KEY, LONG_MS, &peer));
        send(NULL, 0, 0);
    } else {
        printf("%llx\n", (unsigned long long)nic);
        fflush(stdout);
        peer = receive(NULL, 0, 0).source;
    }
    every_length_expected_and_unexpected();
    ping_pong();
    streams_cross();
    vectors_of_256_segments();
    truncation_says_what_was_lost();
    cancel_takes_back_what_has_no_message();
    waits_end_by_wakeup_by_time_and_by_a_message();
    the_unexpected_handler_sees_what_nobody_waits_for();
    threads_share_an_endpoint();
    messages_to_oneself_match_like_any_other();
    rendezvous();
    connections_are_refused_with_the_reason();
    rendezvous();
    farewell();
    OK(mx_close_endpoint(e));
    OK(mx_finalize());
    puts("hosts done");
    return 0;
}
