/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* When sends complete, when their buffers may be used again and when they are given up, and what the environment changes of that: settings.
 * Boards 0 and 1 are the ends of a cable. */
#include "pair.h"

#include <signal.h>

static unsigned char out[300000], in[sizeof out];

/* Opens the pair with a variable in the environment. */
static void open_with(const char *name, const char *value)
{
    CHECK(!setenv(name, value, 1));
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, KEY, NULL, 0, &a));
    OK(mx_open_endpoint(1, MX_ANY_ENDPOINT, KEY, NULL, 0, &b));
    CHECK(!unsetenv(name));
    to_b = connect_to_b(1, KEY, MX_SUCCESS);
}

static void close_both(void)
{
    OK(mx_close_endpoint(a));
    OK(mx_close_endpoint(b));
}

static int is_buffered(mx_request_t *send)
{
    uint32_t result;
    OK(mx_ibuffered(a, send, &result));
    return (int)result;
}

/* Complete, and over then. */
static int is_over(mx_request_t *send)
{
    mx_status_t status;
    uint32_t result;
    OK(mx_test(a, send, &status, &result));
    CHECK(!result || status.code == MX_STATUS_SUCCESS);
    return (int)result;
}

/* B takes the message. */
static void take(uint32_t len, uint64_t info)
{
    mx_request_t receive = post_receive(b, in, len, info, ALL);
    mx_status_t status = finish(b, &receive);
    CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == len && filled(in, len, (unsigned)info));
}

static const uint32_t mediums[] = {129, 1000, 32768};

static void mediums_are_complete_and_buffered_at_once(void)
{
    open_with("OMX_MEDIUM_SENDQ", "1");
    for (unsigned i = 0; i < 3; i++) {
        OK(mx_disable_progression(b));
        fill(out, mediums[i], i);
        mx_request_t send = post_send(a, to_b, out, mediums[i], i);
        CHECK(is_buffered(&send));
        CHECK(is_over(&send));
        fill(out, mediums[i], 77);
        OK(mx_reenable_progression(b));
        take(mediums[i], i);
    }
    close_both();
}

static void mediums_without_copies_wait_for_their_acknowledgement(void)
{
    mx_request_t send, peeked;
    uint32_t result;
    open_with("OMX_MEDIUM_SENDQ", "0");
    for (unsigned i = 0; i < 3; i++) {
        OK(mx_disable_progression(b));
        fill(out, mediums[i], i);
        send = post_send(a, to_b, out, mediums[i], i);
        CHECK(!is_buffered(&send) && !is_over(&send));
        OK(mx_reenable_progression(b));
        take(mediums[i], i);
        /* Never said to be buffered, complete as it is. */
        OK(mx_peek(a, LONG_MS, &peeked, &result));
        CHECK(result == 1 && peeked == send && !is_buffered(&send));
        CHECK(is_over(&send));
    }
    /* Short ones travel in the call. */
    OK(mx_disable_progression(b));
    send = post_send(a, to_b, out, 128, 3);
    CHECK(is_buffered(&send) && is_over(&send));
    OK(mx_reenable_progression(b));
    close_both();
}

static void so_many_sends_are_complete_early_and_no_more(void)
{
    mx_request_t sends[4];
    open_with("OMX_ZOMBIE_SEND", "3");
    OK(mx_disable_progression(b));
    for (unsigned i = 0; i < 4; i++) {
        fill(out + 1000 * i, 1000, i);
        sends[i] = post_send(a, to_b, out + 1000 * i, 1000, i);
        CHECK(is_over(&sends[i]) == (i < 3));
    }
    OK(mx_reenable_progression(b));
    CHECK(finish(a, &sends[3]).code == MX_STATUS_SUCCESS);
    for (unsigned i = 0; i < 4; i++)
        take(1000, i);
    close_both();
}

static mx_request_t large_send;

static void wait_for_the_buffer(struct blocked *blocked)
{
    blocked->code = mx_buffered(a, &large_send, blocked->limit_ms, &blocked->result);
}

static void buffers_of_large_sends_are_waited_for(void)
{
    struct blocked woken = {.call = wait_for_the_buffer, .limit_ms = MX_INFINITE, .result = 7};
    mx_request_t first, peeked;
    uint32_t result = 7;
    open_with("OMX_RESENDS_MAX", "1000");
    fill(out, sizeof out, 2);
    large_send = post_send(a, to_b, out, sizeof out, 2);
    int64_t begin_ns = now_ns();
    OK(mx_buffered(a, &large_send, 50, &result));
    CHECK(result == 0 && now_ns() - begin_ns >= 50 * 1000000LL);
    /* It sleeps, and a wakeup ends that. */
    start_blocked(&woken);
    while (!has_returned(&woken))
        OK(mx_wakeup(a));
    pthread_join(woken.thread, NULL);
    OK(woken.code);
    CHECK(woken.result == 0);
    /* Another one is complete before, and is not taken. */
    first = post_send(a, to_b, out, 4, 1);
    OK(mx_peek(a, LONG_MS, &peeked, &result));
    CHECK(result == 1 && peeked == first);
    take(sizeof out, 2);
    OK(mx_buffered(a, &large_send, MX_INFINITE, &result));
    CHECK(result == 1 && large_send != NULL && !is_buffered(&large_send));
    CHECK(is_over(&large_send) && is_over(&first));
    large_send = post_receive(a, in, 4, 9, ALL);
    RETURNS(mx_buffered(a, &large_send, MX_INFINITE, &result), MX_BAD_REQUEST);
    close_both();
}

static void seen(int number)
{
    (void)number;
}

static void wait_for_a_message(struct blocked *blocked)
{
    mx_status_t status;
    blocked->code = mx_wait_any(b, blocked->limit_ms, 99, ALL, &status, &blocked->result);
}

/* Sends signals to a waiting thread until it is back. */
static void disturb(struct blocked *blocked)
{
    start_blocked(blocked);
    while (!has_returned(blocked))
        CHECK(!pthread_kill(blocked->thread, SIGUSR1));
    pthread_join(blocked->thread, NULL);
    OK(blocked->code);
    CHECK(blocked->result == 0);
}

static void signals_end_waits_where_they_are_to(void)
{
    struct sigaction action = {.sa_handler = seen};
    struct blocked for_ever = {.call = wait_for_a_message, .limit_ms = MX_INFINITE, .result = 7};
    struct blocked for_a_while = {.call = wait_for_a_message, .limit_ms = 200, .result = 7};
    int64_t begin_ns;
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    open_with("OMX_WAITINTR", "1");
    disturb(&for_ever);
    close_both();
    open_with("OMX_WAITINTR", "0");
    begin_ns = now_ns();
    disturb(&for_a_while);
    CHECK(now_ns() - begin_ns >= 200 * 1000000LL);
    close_both();
}

/* The partner says nothing for longer than a send may take. */
static void sends_are_given_up_after_their_limit(void)
{
    mx_segment_t segment = {out, 1000};
    mx_status_t status;
    mx_request_t send;
    uint32_t result;
    for (int of_one = 0; of_one < 2; of_one++) {
        open_with("OMX_RESENDS_MAX", "1000");
        OK(mx_disable_progression(b));
        if (!of_one)
            OK(mx_set_request_timeout(a, NULL, 300));
        int64_t begin_ns = now_ns();
        OK(mx_issend(a, &segment, 1, to_b, 5, NULL, &send));
        if (of_one)
            OK(mx_set_request_timeout(a, send, 300));
        /* Without a limit of its own it would take 500 s. */
        OK(mx_wait(a, &send, LONG_MS, &status, &result));
        CHECK(result == 1 && now_ns() - begin_ns >= 300 * 1000000LL);
        RETURNS(status.code, MX_STATUS_ENDPOINT_UNREACHABLE);
        OK(mx_reenable_progression(b));
        close_both();
    }
}

int main(void)
{
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    /* What never ends on its own ends the program here. */
    alarm(300);
    mediums_are_complete_and_buffered_at_once();
    mediums_without_copies_wait_for_their_acknowledgement();
    so_many_sends_are_complete_early_and_no_more();
    buffers_of_large_sends_are_waited_for();
    signals_end_waits_where_they_are_to();
    sends_are_given_up_after_their_limit();
    OK(mx_finalize());
    puts("settings done");
    return 0;
}
