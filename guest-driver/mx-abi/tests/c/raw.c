/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The raw interface and the internal calls that programs make: raw. Boards 0 and 1 are the ends of a cable, switched on. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <mx_internals/mx__driver_interface.h>
#include <mx_internals/mx__fops.h>
#include <mx_raw.h>
#include <myriexpress.h>

#include "check.h"

#define LONG_MS 20000

/* Open-MX's names, which no header has. */
mx_return_t omx_raw_open_endpoint(uint32_t board, mx_param_t *params, uint32_t count, mx_raw_endpoint_t *endpoint);
mx_return_t omx_raw_close_endpoint(mx_raw_endpoint_t endpoint);
mx_return_t omx__raw_send(
    mx_raw_endpoint_t endpoint, uint32_t port, void *route, uint32_t route_len, void *buffer, uint32_t len, void *context);
mx_return_t omx__raw_next_event(
    mx_raw_endpoint_t endpoint, uint32_t *port, void **context, void *buffer, uint32_t *bytes, uint32_t timeout_ms,
    mx_raw_status_t *status);

/* Of all the frames on the cable a raw endpoint receives raw ones of at most 1024 bytes. */
static void raw_frames_alone(mx_raw_endpoint_t from, mx_raw_endpoint_t at)
{
    static unsigned char frame[1100] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x86, 0xdf};
    /* Host query, tiny, pull reply; raw with and without a mark; too long; the last one ends the test. */
    static const struct {
        unsigned char type;
        uint32_t length;
        int passes;
    } sent[] = {{3, 60, 0}, {0x25, 60, 0}, {0x2a, 1000, 0}, {1, 61, 1}, {0x81, 62, 1}, {1, 1025, 0}, {1, 1024, 1}};
    unsigned char buffer[2000];
    mx_raw_status_t status;
    uint32_t port, bytes;
    void *context;
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        frame[16] = sent[i].type;
        /* The authorities' own raw frames are others. */
        memcpy(frame + 40, "this test", 9);
        OK(omx__raw_send(from, 0, NULL, 0, frame, sent[i].length, NULL));
    }
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        if (!sent[i].passes)
            continue;
        do {
            bytes = sizeof buffer;
            OK(omx__raw_next_event(at, &port, &context, buffer, &bytes, LONG_MS, &status));
            CHECK(status == MX_RAW_RECV_COMPLETE && (buffer[16] & 0x7f) == 1 && bytes <= 1024);
        } while (memcmp(buffer + 40, "this test", 9));
        CHECK(bytes == sent[i].length && buffer[16] == sent[i].type);
    }
}

static void frames_and_peers(void)
{
    mx_raw_endpoint_t e, second;
    mx_raw_status_t status = 7;
    unsigned char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x86, 0xdf, 0, 0, 1}, buffer[2000] = {0};
    uint32_t port = 7, bytes = sizeof buffer, ports = 0;
    mx_line_speed_t speed = MX_SPEED_2G;
    void *context = NULL;
    char name[MX_MAX_HOSTNAME_LEN];
    uint64_t peer = 0x020000000042ULL;
    CHECK(mx_raw_handle(NULL) == -1);
    RETURNS(mx_raw_open_endpoint(99, NULL, 0, &e), MX_BOARD_UNKNOWN);
    OK(mx_raw_open_endpoint(0, NULL, 0, &e));
    RETURNS(mx_raw_open_endpoint(0, NULL, 0, &second), MX_BUSY);
    OK(mx_raw_send(e, 0, NULL, 0, frame, sizeof frame, frame));
    RETURNS(mx_raw_send(e, 0, NULL, 0, buffer, sizeof buffer, NULL), MX_NO_RESOURCES);
    OK(mx_raw_next_event(e, &port, &context, buffer, &bytes, LONG_MS, &status));
    CHECK(status == MX_RAW_SEND_COMPLETE && context == frame);
    OK(mx_raw_next_event(e, &port, &context, buffer, &bytes, 0, &status));
    CHECK(status == MX_RAW_NO_EVENT || status == MX_RAW_RECV_COMPLETE);
    OK(omx_raw_open_endpoint(1, NULL, 0, &second));
    /* Board 1 is the other end of the cable. */
    OK(mx_raw_send(e, 0, NULL, 0, frame, sizeof frame, NULL));
    do {
        bytes = sizeof buffer;
        OK(mx_raw_next_event(second, &port, &context, buffer, &bytes, LONG_MS, &status));
        CHECK(status == MX_RAW_RECV_COMPLETE && port == 0);
    } while (bytes != sizeof frame || memcmp(buffer, frame, sizeof frame));
    raw_frames_alone(e, second);
    OK(omx_raw_close_endpoint(second));
    OK(mx_raw_set_route_begin(e));
    OK(mx_raw_set_route(e, peer, NULL, 0, 0, 0, MX_HOST_MX));
    OK(mx_raw_set_route_mag(e, peer, NULL, 0, 0, 0, MX_HOST_MX, 0));
    OK(mx_raw_set_peer_name(e, peer, "somebody:0"));
    OK(mx_nic_id_to_hostname(peer, name));
    CHECK(!strcmp(name, "somebody:0"));
    OK(mx_raw_set_hostname(e, "renamed:0"));
    OK(mx_hostname_to_nic_id("renamed:0", &peer));
    OK(mx_raw_clear_routes(e, peer, 0));
    OK(mx_raw_remove_peer(e, peer));
    OK(mx_raw_set_route_end(e));
    OK(mx_raw_num_ports(e, &ports));
    CHECK(ports == 1);
    OK(mx_raw_line_speed(e, &speed));
    CHECK(speed == MX_SPEED_10G);
    OK(mx_raw_set_nic_reply_info(e, frame, 3));
    OK(mx_raw_close_endpoint(e));
    RETURNS(mx_raw_close_endpoint(e), MX_BAD_ENDPOINT);
    RETURNS(mx_raw_num_ports(e, &ports), MX_BAD_ENDPOINT);
    CHECK(mx_raw_handle(e) == -1);
}

/* Takes what is there. */
static void drain(mx_raw_endpoint_t e)
{
    unsigned char buffer[2000];
    mx_raw_status_t status;
    uint32_t port, bytes;
    void *context;
    do {
        bytes = sizeof buffer;
        OK(mx_raw_next_event(e, &port, &context, buffer, &bytes, 0, &status));
    } while (status != MX_RAW_NO_EVENT);
}

/* The handle is readable while there is an event, and only then. */
static void handles_can_be_polled(void)
{
    unsigned char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x86, 0xdf, 0, 0, 1};
    /* Of a type for experiments. */
    unsigned char unknown[60] = {2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};
    mx_raw_endpoint_t e, other;
    OK(mx_raw_open_endpoint(0, NULL, 0, &e));
    OK(mx_raw_open_endpoint(1, NULL, 0, &other));
    struct pollfd here = {.fd = mx_raw_handle(e), .events = POLLIN}, there = {.fd = mx_raw_handle(other), .events = POLLIN};
    /* The authorities may send a frame of their own at any time; what stays readable ends the program. */
    alarm(120);
    do
        drain(other);
    while (poll(&there, 1, 0) != 0);
    do
        drain(e);
    while (poll(&here, 1, 0) != 0);
    /* A completion, of a frame that is neither taken nor answered. */
    OK(mx_raw_send(e, 0, NULL, 0, unknown, sizeof unknown, NULL));
    CHECK(poll(&here, 1, 0) == 1 && here.revents == POLLIN);
    OK(mx_raw_send(e, 0, NULL, 0, frame, sizeof frame, NULL));
    CHECK(poll(&there, 1, LONG_MS) == 1 && there.revents == POLLIN);
    do
        drain(other);
    while (poll(&there, 1, 0) != 0);
    do
        drain(e);
    while (poll(&here, 1, 0) != 0);
    alarm(0);
    OK(mx_raw_close_endpoint(e));
    OK(mx_raw_close_endpoint(other));
}

static mx_raw_endpoint_t watched;

struct waited {
    uint32_t limit_ms;
    /* 1 when it is about to wait. */
    int state;
    mx_return_t code;
    mx_raw_status_t status;
    void *context;
    /* How often it slept. */
    long sleeps;
};

static void *wait_for_event(void *argument)
{
    struct waited *waited = argument;
    unsigned char buffer[2000];
    struct rusage before, after;
    uint32_t port, bytes = sizeof buffer;
    __atomic_store_n(&waited->state, 1, __ATOMIC_RELEASE);
    CHECK(!getrusage(RUSAGE_THREAD, &before));
    do
        waited->code = mx_raw_next_event(watched, &port, &waited->context, buffer, &bytes, waited->limit_ms, &waited->status);
    while (waited->code == MX_SUCCESS && waited->status == MX_RAW_RECV_COMPLETE);
    CHECK(!getrusage(RUSAGE_THREAD, &after));
    waited->sleeps = after.ru_nvcsw - before.ru_nvcsw;
    return NULL;
}

static pthread_t start_to_wait(struct waited *waited)
{
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, wait_for_event, waited));
    while (!__atomic_load_n(&waited->state, __ATOMIC_ACQUIRE))
        ;
    return thread;
}

/* A thread that waits blocks no other, and learns of what others do. */
static void threads_share_a_raw_endpoint(void)
{
    unsigned char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x86, 0xdf, 0, 0, 1};
    struct waited waited = {.limit_ms = 1000};
    struct timespec begin, end;
    pthread_t thread;
    OK(mx_raw_open_endpoint(0, NULL, 0, &watched));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    thread = start_to_wait(&waited);
    pthread_join(thread, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    OK(waited.code);
    CHECK(waited.status == MX_RAW_NO_EVENT);
    /* Not before its time. */
    CHECK((end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec >= 1000000000LL);
    /* And it slept through, but for frames of the authorities. */
    CHECK(waited.sleeps < 30);
    /* Others use the endpoint meanwhile. */
    waited = (struct waited){.limit_ms = LONG_MS};
    thread = start_to_wait(&waited);
    OK(mx_raw_send(watched, 0, NULL, 0, frame, sizeof frame, &waited));
    pthread_join(thread, NULL);
    OK(waited.code);
    CHECK(waited.status == MX_RAW_SEND_COMPLETE && waited.context == &waited);
    waited = (struct waited){.limit_ms = LONG_MS};
    thread = start_to_wait(&waited);
    OK(mx_raw_close_endpoint(watched));
    pthread_join(thread, NULL);
    RETURNS(waited.code, MX_BAD_ENDPOINT);
}

static mx_mapper_state_t state_of(mx_endpt_handle_t handle)
{
    mx_mapper_state_t state;
    memset(&state, 0xa5, sizeof state);
    OK(mx__get_mapper_state(handle, &state));
    return state;
}

/* Of the board that the handle stands for, whatever the structure held before. */
static void the_mappers_state_is_that_of_the_handle(void)
{
    mx_endpt_handle_t first = MX__INVALID_HANDLE, second = MX__INVALID_HANDLE, none = MX__INVALID_HANDLE;
    mx_mapper_state_t state, other;
    mx_raw_endpoint_t e;
    uint64_t nic, mapper = 0x0200000000aaULL;
    OK(mx_open_board(0, &first));
    OK(mx_open_board(1, &second));
    OK(mx_open_board(99, &none));
    RETURNS(mx__get_mapper_state(none, &state), MX_BOARD_UNKNOWN);
    RETURNS(mx__get_mapper_state(MX__INVALID_HANDLE, &state), MX_BOARD_UNKNOWN);
    RETURNS(mx__get_mapper_state(first, NULL), MX_BAD_INFO_VAL);
    OK(mx_board_number_to_nic_id(1, &nic));
    state = state_of(second);
    CHECK(state.board_number == 1 && state.network_configured == 1 && state.num_hosts >= 1);
    CHECK(state.mapper_mac[5] == (nic & 0xff) && !state.iport && !state.level && !state.flags);
    /* A mapping daemon says what it made, of one board. */
    OK(mx_raw_open_endpoint(0, NULL, 0, &e));
    OK(mx_raw_set_map_version(e, 0, mapper, 7, 12, 0));
    state = state_of(mx_raw_handle(e));
    CHECK(state.board_number == 0 && state.map_version == 7 && state.num_hosts == 12 && state.network_configured == 0);
    CHECK(state.mapper_mac[0] == 2 && state.mapper_mac[5] == 0xaa);
    OK(mx_raw_set_map_version(e, 0, mapper, 8, 13, 1));
    RETURNS(mx_raw_set_map_version(e, 0, UINT64_MAX, 9, 14, 1), MX_NIC_NOT_FOUND);
    OK(mx_raw_close_endpoint(e));
    state = state_of(first);
    CHECK(state.map_version == 8 && state.num_hosts == 13 && state.network_configured == 1);
    other = state_of(second);
    CHECK(other.map_version == 1 && other.mapper_mac[5] == (nic & 0xff));
}

int main(void)
{
    mx_raw_endpoint_t e;
    RETURNS(mx_raw_open_endpoint(0, NULL, 0, &e), MX_NOT_INITIALIZED);
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    frames_and_peers();
    handles_can_be_polled();
    threads_share_a_raw_endpoint();
    the_mappers_state_is_that_of_the_handle();
    OK(mx_finalize());
    puts("raw done");
    return 0;
}
