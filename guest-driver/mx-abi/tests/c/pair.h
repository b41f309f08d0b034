/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Two endpoints of this process and how the batteries use them. Compiled with the MX headers, and once more with those that turn
 * MX names into Open-MX calls. */
#ifndef PAIR_H
#define PAIR_H

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

static inline void close_pair(void)
{
    OK(mx_close_endpoint(a));
    OK(mx_close_endpoint(b));
    OK(mx_finalize());
}

#endif
