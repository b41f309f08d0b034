/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What becomes of messages and connections when the other end changes in between: ends. Boards 0 and 1 are the ends of a cable. */
#include <stdint.h>
#include <unistd.h>

#include "myriexpress.h"
#include "mx_extensions.h"

#include "check.h"

#define ALL MX_MATCH_MASK_NONE
#define LONG_MS 20000

static mx_endpoint_t a, b;
/* b as a knows it. */
static mx_endpoint_addr_t to_b;
static unsigned char large[300000], in[sizeof large];
static mx_segment_t out_segment = {large, sizeof large}, in_segment = {in, sizeof in}, medium_segment = {large, 1000};

static mx_endpoint_t opened_on(uint32_t board)
{
    mx_endpoint_t endpoint;
    OK(mx_open_endpoint(board, 0, 0, NULL, 0, &endpoint));
    return endpoint;
}

static uint64_t nic_of_b(void)
{
    uint64_t nic;
    OK(mx_board_number_to_nic_id(1, &nic));
    return nic;
}

static void connect_anew(void)
{
    OK(mx_connect(a, nic_of_b(), 0, 0, LONG_MS, &to_b));
}

/* How a request ended. */
static mx_status_t ended(mx_endpoint_t endpoint, mx_request_t *request)
{
    mx_status_t status;
    uint32_t result;
    OK(mx_wait(endpoint, request, LONG_MS, &status, &result));
    CHECK(result == 1);
    return status;
}

static void connects(void)
{
    static const struct {
        uint32_t endpoint, key;
        mx_status_code_t code;
    } cases[] = {
        {0, 0, MX_STATUS_SUCCESS},
        {0, 1, MX_STATUS_BAD_KEY},
        {31, 0, MX_STATUS_ENDPOINT_CLOSED},
        {77, 0, MX_STATUS_BAD_ENDPOINT},
        {300, 0, MX_STATUS_BAD_ENDPOINT},
        {0xfffffffe, 0, MX_STATUS_BAD_ENDPOINT},
    };
    mx_request_t request;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        OK(mx_iconnect(a, nic_of_b(), cases[i].endpoint, cases[i].key, 1, NULL, &request));
        RETURNS(ended(a, &request).code, cases[i].code);
    }
}

/* A large message from a that b has seen announced and not taken yet. */
static mx_request_t announced(uint64_t info)
{
    mx_request_t send;
    mx_status_t status;
    uint32_t result;
    OK(mx_isend(a, &out_segment, 1, to_b, info, NULL, &send));
    OK(mx_probe(b, LONG_MS, info, ALL, &status, &result));
    CHECK(result == 1 && status.msg_length == sizeof large);
    return send;
}

/* Taken now, the message ends like this. */
static mx_status_code_t taken(uint64_t info)
{
    mx_request_t receive;
    OK(mx_irecv(b, &in_segment, 1, info, ALL, NULL, &receive));
    return ended(b, &receive).code;
}

static void the_sender_changes_before_its_message_is_taken(void)
{
    connect_anew();
    mx_request_t send = announced(1);
    OK(mx_disconnect(a, to_b));
    RETURNS(ended(a, &send).code, MX_STATUS_ENDPOINT_UNREACHABLE);
    RETURNS(taken(1), MX_STATUS_BAD_RDMAWIN);
    /* Its program does something else for longer than the receiver waits. */
    connect_anew();
    send = announced(2);
    OK(mx_disable_progression(a));
    OK(mx_set_request_timeout(b, NULL, 50));
    RETURNS(taken(2), MX_STATUS_TIMEOUT);
    OK(mx_set_request_timeout(b, NULL, 0x7fffffff));
    OK(mx_reenable_progression(a));
    RETURNS(ended(a, &send).code, MX_STATUS_TRUNCATED);
    /* What was announced when its endpoint closed is sent all the same: omxd has it. */
    send = announced(3);
    OK(mx_close_endpoint(a));
    RETURNS(taken(3), MX_STATUS_SUCCESS);
    a = opened_on(0);
    connect_anew();
    send = announced(4);
    OK(mx_close_endpoint(a));
    a = opened_on(0);
    RETURNS(taken(4), MX_STATUS_BAD_SESSION);
}

static void the_receiver_changes_before_it_answers(void)
{
    mx_request_t send, receive;
    uint32_t result;
    connect_anew();
    OK(mx_close_endpoint(b));
    b = opened_on(1);
    OK(mx_issend(a, &medium_segment, 1, to_b, 5, NULL, &send));
    RETURNS(ended(a, &send).code, MX_STATUS_BAD_SESSION);
    connect_anew();
    OK(mx_close_endpoint(b));
    OK(mx_issend(a, &medium_segment, 1, to_b, 6, NULL, &send));
    RETURNS(ended(a, &send).code, MX_STATUS_ENDPOINT_CLOSED);
    /* It is there, and its buffer is short. */
    b = opened_on(1);
    connect_anew();
    OK(mx_irecv(b, &medium_segment, 1, 7, ALL, NULL, &receive));
    OK(mx_isend(a, &out_segment, 1, to_b, 7, NULL, &send));
    RETURNS(ended(b, &receive).code, MX_STATUS_TRUNCATED);
    RETURNS(ended(a, &send).code, MX_STATUS_TRUNCATED);
    /* A request that is over is none any more. */
    OK(mx_irecv(b, &in_segment, 1, 8, ALL, NULL, &receive));
    OK(mx_cancel(b, &receive, &result));
    CHECK(result == 1);
    RETURNS(mx_cancel(b, &receive, &result), MX_BAD_REQUEST);
}

static int told;

static mx_return_t tell(char *text, mx_return_t code)
{
    CHECK(strstr(text, "whose request is over") && code != MX_SUCCESS);
    told++;
    OK(mx_wakeup(a));
    return code;
}

/* A send that was complete for the program fails: its handler learns of it while the program blocks, whatever it waits for. */
static void a_waiting_program_learns_of_sends_that_failed_after_they_were_complete(void)
{
    mx_request_t send, receive, peeked;
    mx_status_t status;
    uint32_t result;
    /* What never ends on its own ends the program here. */
    alarm(120);
    for (int what = 0; what < 4; what++) {
        connect_anew();
        OK(mx_irecv(a, &in_segment, 1, 9, ALL, NULL, &receive));
        OK(mx_disable_progression(b));
        OK(mx_set_request_timeout(a, NULL, 300));
        OK(mx_isend(a, &medium_segment, 1, to_b, 9, NULL, &send));
        RETURNS(ended(a, &send).code, MX_STATUS_SUCCESS);
        told = 0;
        mx_set_error_handler(tell);
        switch (what) {
        case 0:
            OK(mx_wait(a, &receive, MX_INFINITE, &status, &result));
            break;
        case 1:
            OK(mx_wait_any(a, MX_INFINITE, 9, ALL, &status, &result));
            break;
        case 2:
            OK(mx_peek(a, MX_INFINITE, &peeked, &result));
            break;
        case 3:
            OK(mx_probe(a, MX_INFINITE, 9, ALL, &status, &result));
            break;
        }
        CHECK(told == 1 && result == 0);
        mx_set_error_handler(MX_ERRORS_RETURN);
        OK(mx_set_request_timeout(a, NULL, 0x7fffffff));
        OK(mx_cancel(a, &receive, &result));
        CHECK(result == 1);
        OK(mx_close_endpoint(b));
        b = opened_on(1);
    }
    alarm(0);
}

int main(void)
{
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    a = opened_on(0);
    b = opened_on(1);
    connects();
    the_sender_changes_before_its_message_is_taken();
    the_receiver_changes_before_it_answers();
    a_waiting_program_learns_of_sends_that_failed_after_they_were_complete();
    OK(mx_finalize());
    puts("ends done");
    return 0;
}
