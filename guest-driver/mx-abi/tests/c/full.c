/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* An endpoint that holds as many unexpected messages as it may: what else is sent to it waits, whichever peer sends it, and nothing fails:
 * full BOARD BOARD. */
#include "pair.h"

/* Bytes that b holds. */
#define LIMIT 1000000
#define LIMIT_TEXT "1000000"
/* Twice as many bytes are sent as it holds, at least this many messages. */
#define COUNT_MIN 4

/* Match information: from b itself, from a. */
#define FROM_SELF ((uint64_t)1 << 32)
#define FROM_A ((uint64_t)2 << 32)
#define FROM_MASK ((uint64_t)3 << 32)

static mx_endpoint_addr_t self;

static mx_request_t post(mx_endpoint_t from, mx_endpoint_addr_t to, unsigned char *data, uint32_t len, uint64_t info, int synchronous)
{
    mx_segment_t halves[2] = {{data, len / 2}, {data + len / 2, len - len / 2}};
    mx_request_t request;
    if (synchronous)
        OK(mx_issend(from, halves, 2, to, info, NULL, &request));
    else
        OK(mx_isend(from, halves, 2, to, info, NULL, &request));
    return request;
}

static void receive(unsigned char *in, uint32_t len, uint64_t info, uint64_t mask, unsigned seed)
{
    memset(in, 0, len);
    mx_request_t request = post_receive(b, in, len, info, mask);
    mx_status_t status = finish(b, &request);
    CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == len && filled(in, len, seed));
}

static void sends_wait_until_there_is_room(uint32_t len, int synchronous)
{
    uint32_t count = 2 * LIMIT / len < COUNT_MIN ? COUNT_MIN : 2 * LIMIT / len, result;
    unsigned char *out = malloc((size_t)len * count), *in = malloc(len);
    mx_request_t *own = calloc(count, sizeof *own), *others = calloc(count, sizeof *others);
    mx_status_t status;
    for (uint32_t i = 0; i < count; i++) {
        fill(out + (size_t)len * i, len, i);
        own[i] = post(b, self, out + (size_t)len * i, len, FROM_SELF | i, synchronous);
        others[i] = post(a, to_b, out + (size_t)len * i, len, FROM_A | i, synchronous);
    }
    for (int i = 0; i < 100; i++) {
        OK(mx_progress(a));
        OK(mx_progress(b));
    }
    /* Buffered as long as there was room, pending all of them, and all can be seen. */
    OK(mx_ibuffered(b, &own[0], &result));
    CHECK(result == (len < LIMIT));
    OK(mx_ibuffered(b, &own[count - 1], &result));
    CHECK(result == 0);
    for (uint32_t i = 0; i < count; i++) {
        OK(mx_test(b, &own[i], &status, &result));
        CHECK(result == 0);
        OK(mx_iprobe(b, FROM_SELF | i, ALL, &status, &result));
        CHECK(result == 1 && status.msg_length == len && !memcmp(&status.source, &self, sizeof self));
    }
    /* The last one can be had; the others come in order. */
    receive(in, len, FROM_SELF | (count - 1), ALL, count - 1);
    for (uint32_t i = 0; i < count - 1; i++)
        receive(in, len, FROM_SELF, FROM_MASK, i);
    for (uint32_t i = 0; i < count; i++)
        receive(in, len, FROM_A, FROM_MASK, i);
    for (uint32_t i = 0; i < count; i++) {
        status = finish(b, &own[i]);
        CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == len);
        status = finish(a, &others[i]);
        CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == len);
    }
    free(out);
    free(in);
    free(own);
    free(others);
}

static mx_unexp_handler_action_t take(void *context, mx_endpoint_addr_t from, uint64_t info, uint32_t length, void *data)
{
    (void)from;
    if (info != (FROM_SELF | 77))
        return MX_RECV_CONTINUE;
    CHECK(filled(data, length, 9));
    ++*(int *)context;
    return MX_RECV_FINISHED;
}

/* Larger than all that is kept: a buffer too short for it, and a handler. */
static void one_that_never_fits_is_received_and_handled_as_others(void)
{
    static unsigned char out[LIMIT + 7], in[1000];
    int handled = 0;
    fill(out, sizeof out, 9);
    mx_request_t send = post(b, self, out, sizeof out, FROM_SELF, 0), request = post_receive(b, in, sizeof in, FROM_SELF, ALL);
    mx_status_t status = finish(b, &request);
    CHECK(status.code == MX_STATUS_TRUNCATED && status.msg_length == sizeof out && filled(in, sizeof in, 9));
    status = finish(b, &send);
    CHECK(status.code == MX_STATUS_TRUNCATED && status.xfer_length == sizeof in);
    OK(mx_register_unexp_handler(b, take, &handled));
    send = post(b, self, out, sizeof out, FROM_SELF | 77, 0);
    status = finish(b, &send);
    CHECK(status.code == MX_STATUS_SUCCESS && handled == 1);
    OK(mx_register_unexp_handler(b, NULL, NULL));
}

/* As it is for a program that sets nothing: 64 MiB. */
static void more_than_64_mib_to_oneself(void)
{
    enum { COUNT = 70, LEN = 1 << 20 };
    unsigned char *out = malloc((size_t)COUNT * LEN), *in = malloc(LEN);
    mx_request_t sends[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        fill(out + (size_t)LEN * i, LEN, i);
        sends[i] = post(a, self, out + (size_t)LEN * i, LEN, i, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        mx_request_t request = post_receive(a, in, LEN, i, ALL);
        finish(a, &request);
        CHECK(filled(in, LEN, i));
        finish(a, &sends[i]);
    }
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    static const uint32_t lengths[] = {3000, 20000, 50000, LIMIT + 1};
    uint32_t board_a, board_b;
    CHECK(argc == 3);
    board_a = (uint32_t)atoi(argv[1]);
    board_b = (uint32_t)atoi(argv[2]);
    open_pair(board_a, board_b);
    mx_set_error_handler(MX_ERRORS_ARE_FATAL);
    OK(mx_get_endpoint_addr(a, &self));
    more_than_64_mib_to_oneself();
    close_pair();
    CHECK(!setenv("OMX_UNEXPECTED_BYTES_MAX", LIMIT_TEXT, 1));
    open_pair(board_a, board_b);
    OK(mx_get_endpoint_addr(b, &self));
    mx_set_error_handler(MX_ERRORS_ARE_FATAL);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int synchronous = 0; synchronous < 2; synchronous++)
            sends_wait_until_there_is_room(lengths[i], synchronous);
    mx_set_error_handler(MX_ERRORS_RETURN);
    one_that_never_fits_is_received_and_handled_as_others();
    close_pair();
    puts("full done");
    return 0;
}
