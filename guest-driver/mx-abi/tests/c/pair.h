/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Two endpoints of this process and how the batteries use them. Compiled with the MX headers, and once more with those that turn
 * MX names into Open-MX calls. */
#ifndef PAIR_H
#define PAIR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

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
static inline mx_status_t finish(mx_endpoint_t endpoint, mx_request_t *request)
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

static inline mx_request_t post_send(mx_endpoint_t from, mx_endpoint_addr_t to, void *data, uint32_t len, uint64_t info)
{
    mx_segment_t segment = {data, len};
    mx_request_t request;
    OK(mx_isend(from, &segment, 1, to, info, (void *)(uintptr_t)(info + 1), &request));
    return request;
}

static inline mx_request_t post_receive(mx_endpoint_t at, void *data, uint32_t len, uint64_t info, uint64_t mask)
{
    mx_segment_t segment = {data, len};
    mx_request_t request;
    OK(mx_irecv(at, &segment, 1, info, mask, NULL, &request));
    return request;
}

static inline void *progress_b(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE))
        OK(mx_progress(b));
    return NULL;
}

static inline mx_endpoint_addr_t connect_to_b(uint32_t board_b, uint32_t key, mx_return_t expected)
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

static inline void open_pair(uint32_t board_a, uint32_t board_b)
{
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(board_a, MX_ANY_ENDPOINT, KEY, NULL, 0, &a));
    OK(mx_open_endpoint(board_b, MX_ANY_ENDPOINT, KEY, NULL, 0, &b));
    to_b = connect_to_b(board_b, KEY, MX_SUCCESS);
}

/* A call that blocks, made by a thread of its own. */
struct blocked {
    void (*call)(struct blocked *);
    pthread_t thread;
    pid_t tid;
    /* The thread is back. */
    int returned;
    uint32_t limit_ms, result;
    mx_return_t code;
};

static inline void *call_and_say_so(void *argument)
{
    struct blocked *blocked = argument;
    __atomic_store_n(&blocked->tid, gettid(), __ATOMIC_RELEASE);
    blocked->call(blocked);
    __atomic_store_n(&blocked->returned, 1, __ATOMIC_RELEASE);
    return NULL;
}

static inline int has_returned(struct blocked *blocked)
{
    return __atomic_load_n(&blocked->returned, __ATOMIC_ACQUIRE);
}

/* Starts it; it sleeps then, and has not returned. */
static inline void start_blocked(struct blocked *blocked)
{
    char path[64], line[256], state = 0;
    CHECK(!pthread_create(&blocked->thread, NULL, call_and_say_so, blocked));
    while (!__atomic_load_n(&blocked->tid, __ATOMIC_ACQUIRE))
        ;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)blocked->tid);
    while (state != 'S') {
        CHECK(!has_returned(blocked));
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(line, sizeof line, file));
        fclose(file);
        state = strrchr(line, ')')[2];
    }
}

static inline int64_t now_ns(void)
{
    struct timespec now;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &now));
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void close_pair(void)
{
    OK(mx_close_endpoint(a));
    OK(mx_close_endpoint(b));
    OK(mx_finalize());
}

#endif
