/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What only the headers that turn MX names into Open-MX calls could get wrong: translated. Board 0 is switched on. Compiled with the raw
 * and internal headers before and behind the others. */
#ifdef RAW_FIRST
#include <mx_internals/mx__driver_interface.h>
#include <mx_internals/mx__fops.h>
#include <mx_raw.h>
#include <mx_io.h>
#endif
#include <mx_extensions.h>
#include <myriexpress.h>
#ifndef RAW_FIRST
#include <mx_io.h>
#include <mx_raw.h>
#include <mx_internals/mx__fops.h>
#include <mx_internals/mx__driver_interface.h>
#endif

#include <unistd.h>

#include "check.h"

_Static_assert(MX_INFINITE == OMX_TIMEOUT_INFINITE, "the translating headers are in use");

static mx_return_t seen_by_process, seen_by_endpoint;

static mx_return_t note(char *text, mx_return_t code)
{
    CHECK(text != NULL);
    seen_by_process = code;
    return code;
}

static mx_return_t note_of_endpoint(char *text, mx_return_t code)
{
    CHECK(text != NULL);
    seen_by_endpoint = code;
    return code;
}

/* The program's own handlers see the errors of every call. */
static void errors_come_to_the_programs_handlers(mx_endpoint_t endpoint)
{
    uint32_t value;
    mx_request_t request;
    RETURNS(mx_get_info(NULL, (mx_get_info_key_t)77, NULL, 0, &value, sizeof value), MX_BAD_INFO_KEY);
    RETURNS(seen_by_process, MX_BAD_INFO_KEY);
    RETURNS(mx_get_info(endpoint, MX_NIC_COUNT, NULL, 0, &value, 1), MX_BAD_INFO_LENGTH);
    RETURNS(seen_by_endpoint, MX_BAD_INFO_LENGTH);
    RETURNS(mx_irecv(endpoint, NULL, 0, 2, 1, NULL, &request), MX_BAD_MATCH_MASK);
    RETURNS(seen_by_endpoint, MX_BAD_MATCH_MASK);
    RETURNS(seen_by_process, MX_BAD_INFO_KEY);
}

static void keys_are_those_of_mx(mx_endpoint_t endpoint)
{
    uint32_t value = 0;
    OK(mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &value, sizeof value));
    CHECK(value == 2);
    OK(mx_get_info(endpoint, MX_NET_TYPE, NULL, 0, &value, sizeof value));
    CHECK(value == MX_NET_ETHER);
}

static void calls_that_open_mx_has_not(mx_endpoint_t endpoint)
{
    static char large[300000];
    mx_segment_t short_one = {large, 4}, long_one = {large, sizeof large};
    mx_endpoint_addr_t self, other;
    mx_endpoint_t second;
    mx_request_t send;
    uint64_t nic;
    uint32_t id, result = 7;
    OK(mx_get_endpoint_addr(endpoint, &self));
    OK(mx_isend(endpoint, &short_one, 1, self, 1, NULL, &send));
    OK(mx_buffered(endpoint, &send, MX_INFINITE, &result));
    CHECK(result == 1);
    /* A time limit of 0 checks once. */
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, 0, NULL, 0, &second));
    OK(mx_get_endpoint_addr(second, &other));
    OK(mx_decompose_endpoint_addr(other, &nic, &id));
    OK(mx_connect(second, nic, id, 0, MX_INFINITE, &other));
    OK(mx_get_endpoint_addr(endpoint, &other));
    OK(mx_decompose_endpoint_addr(other, &nic, &id));
    OK(mx_connect(second, nic, id, 0, MX_INFINITE, &other));
    OK(mx_isend(second, &long_one, 1, other, 2, NULL, &send));
    alarm(120);
    OK(mx_buffered(second, &send, 0, &result));
    CHECK(result == 0);
    alarm(0);
    OK(mx_close_endpoint(second));
    RETURNS(mx_iput(endpoint, NULL, 0, self, 0, NULL, &send), MX_FAILURE);
    RETURNS(mx_iget(endpoint, NULL, 0, self, 0, NULL, &send), MX_FAILURE);
    RETURNS(mx_register_unexp_callback(endpoint, (mx_matching_callback_t)NULL, NULL), MX_FAILURE);
}

static void the_raw_interface_is_there(void)
{
    mx_raw_endpoint_t raw;
    mx_endpt_handle_t handle = MX__INVALID_HANDLE;
    mx_mapper_state_t state = {.board_number = 0};
    uint32_t ports = 0;
    RETURNS(mx_raw_open_endpoint(99, NULL, 0, &raw), MX_BOARD_UNKNOWN);
    OK(mx_raw_open_endpoint(0, NULL, 0, &raw));
    OK(mx_raw_num_ports(raw, &ports));
    CHECK(ports == 1 && mx_raw_handle(raw) >= 0);
    OK(mx_raw_close_endpoint(raw));
    OK(mx_open_board(0, &handle));
    OK(mx__get_mapper_state(handle, &state));
    CHECK(state.network_configured == 1);
}

int main(void)
{
    mx_endpoint_t endpoint;
    mx_param_t param = {.key = MX_PARAM_ERROR_HANDLER, .val.error_handler = note_of_endpoint};
    mx_set_error_handler(note);
    OK(mx_init());
    OK(mx_open_endpoint(0, MX_ANY_ENDPOINT, 0, &param, 1, &endpoint));
    errors_come_to_the_programs_handlers(endpoint);
    keys_are_those_of_mx(endpoint);
    calls_that_open_mx_has_not(endpoint);
    the_raw_interface_is_there();
    CHECK(mx_set_error_handler(MX_ERRORS_RETURN) == note);
    OK(mx_close_endpoint(endpoint));
    OK(mx_finalize());
    puts("translated done");
    return 0;
}
