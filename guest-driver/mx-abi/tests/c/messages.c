/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What MX promises of messages, between two endpoints of this process: messages BOARD BOARD. */
#include "pair.h"

static void every_length_expected_and_unexpected(void)
{
    static const uint32_t lengths[] = {0, 1, 32, 33, 128, 129, 4096, 4097, 32768, 32769, 300000, 2 << 20, 8 << 20};
    unsigned char *out = malloc(8 << 20), *in = malloc(8 << 20);
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
        /* Without a place for the request its completion is not taken. */
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

int main(int argc, char **argv)
{
    uint32_t board_a, board_b;
    CHECK(argc == 3);
    board_a = (uint32_t)atoi(argv[1]);
    board_b = (uint32_t)atoi(argv[2]);
    open_pair(board_a, board_b);
    every_length_expected_and_unexpected();
    ping_pong_and_answers_to_where_they_came_from();
    a_stream_arrives_in_order_whoever_takes_it();
    vectors_of_256_segments();
    truncation_says_what_was_lost();
    cancel_takes_back_what_has_no_message();
    forgotten_requests_are_over_for_the_program();
    buffered_says_whether_the_bytes_are_safe();
    close_pair();
    puts("messages done");
    return 0;
}
