/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What MX promises of handlers, waits, threads, addresses and connections: calls BOARD BOARD. */
#include "pair.h"

/* A host that does not exist. */
#define NOBODY 0x020000fffffeULL

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
    /* Nothing is closed then. */
    RETURNS(mx_finalize(), MX_CLOSE_IN_HANDLER);
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
    /* Consumed: it is not found any more. The address it came from can be used. */
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

static void wait_for_a_message(struct blocked *blocked)
{
    mx_status_t status;
    blocked->code = mx_wait_any(b, MX_INFINITE, 99, ALL, &status, &blocked->result);
}

static void connect_to_nobody(struct blocked *blocked)
{
    mx_endpoint_addr_t address;
    blocked->code = mx_connect(b, NOBODY, 0, KEY, MX_INFINITE, &address);
}

/* Wakes a call up that never ends on its own. */
static void wake(struct blocked *blocked)
{
    start_blocked(blocked);
    CHECK(!has_returned(blocked));
    /* A wakeup without a sleeping thread is lost: so until the thread says that it woke up. */
    while (!has_returned(blocked))
        OK(mx_wakeup(b));
    pthread_join(blocked->thread, NULL);
}

static void wakeup_ends_waits_and_connects(void)
{
    struct blocked wait = {.call = wait_for_a_message, .result = 7}, connect = {.call = connect_to_nobody};
    wake(&wait);
    OK(wait.code);
    CHECK(wait.result == 0);
    wake(&connect);
    RETURNS(connect.code, MX_TIMEOUT);
}

#define LIMIT_MS 50

/* Not before they are over, that is. */
static void time_limits_end_waits(void)
{
    mx_endpoint_addr_t address;
    mx_status_t status;
    uint32_t result = 7;
    mx_request_t request = NULL, peeked;
    char in[4];
    request = post_receive(b, in, sizeof in, 99, ALL);
    for (int what = 0; what < 5; what++) {
        int64_t begin_ns = now_ns();
        result = 7;
        switch (what) {
        case 0: OK(mx_wait_any(b, LIMIT_MS, 99, ALL, &status, &result)); break;
        case 1: OK(mx_probe(b, LIMIT_MS, 99, ALL, &status, &result)); break;
        case 2: OK(mx_peek(b, LIMIT_MS, &peeked, &result)); break;
        case 3: OK(mx_wait(b, &request, LIMIT_MS, &status, &result)); break;
        case 4:
            RETURNS(mx_connect(b, NOBODY, 0, KEY, LIMIT_MS, &address), MX_TIMEOUT);
            result = 0;
            break;
        }
        CHECK(result == 0 && now_ns() - begin_ns >= LIMIT_MS * 1000000LL);
    }
    CHECK(request != NULL);
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
    RETURNS(mx_connect(a, NOBODY, 0, KEY, 5, &address), MX_TIMEOUT);
    OK(mx_iconnect(a, NOBODY, 0, KEY, 1, NULL, &request));
    OK(mx_cancel(a, &request, &result));
    CHECK(result == 1 && request == NULL);
    OK(mx_iconnect(a, nic, id, KEY, 0x55, &stop, &request));
    mx_status_t status = finish(a, &request);
    CHECK(status.code == MX_STATUS_SUCCESS && status.match_info == 0x55 && status.context == &stop);
    CHECK(!memcmp(&status.source, &to_b, sizeof to_b));
    OK(mx_iconnect(a, nic, 31, KEY, 0x56, NULL, &request));
    CHECK(finish(a, &request).code == MX_STATUS_ENDPOINT_CLOSED);
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
static char seen_text[200];

static mx_return_t note(char *text, mx_return_t code)
{
    CHECK(text != NULL && *text);
    snprintf(seen_text, sizeof seen_text, "%s", text);
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
    /* In the words of the interface, also where its number is its own. */
    OK(mx_get_endpoint_addr(b, &self));
    CHECK(mx_isend(b, NULL, 1, self, 1, NULL, &request) == seen_code && seen_code != MX_SUCCESS);
    CHECK(strstr(seen_text, mx_strerror(seen_code)) && !strstr(seen_text, "unknown"));
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
    open_pair(board_a, board_b);
    the_unexpected_handler_sees_what_nobody_waits_for();
    wakeup_ends_waits_and_connects();
    time_limits_end_waits();
    threads_share_an_endpoint();
    messages_to_oneself_match_like_any_other();
    masks_are_checked();
    addresses_carry_pointers();
    progression_can_be_switched_off();
    context_ids_select_and_restrict(board_a);
    errors_pass_the_handlers(board_a);
    connections_end_in_every_way(board_b);
    close_pair();
    RETURNS(mx_finalize(), MX_NOT_INITIALIZED);
    OK(mx_init());
    OK(mx_finalize());
    puts("calls done");
    return 0;
}
