/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Codes that need a world of their own: failures WHAT. Boards 0 and 1 are the ends of a cable, switched on. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include <mx_extensions.h>
#include <mx_raw.h>
#include <myriexpress.h>
#include <open-mx.h>

#include "check.h"

#define LONG_MS 20000
/* A host that does not exist. */
#define NOBODY 0x020000fffffeULL

static omx_endpoint_t a, b;
static omx_endpoint_addr_t to_b;

static void open_on(uint32_t board, uint32_t number, omx_endpoint_t *endpoint)
{
    OK(omx_open_endpoint(board, number, 0, NULL, 0, endpoint));
}

/* From a, on board 0, to b, on board 1. */
static omx_endpoint_addr_t connected(void)
{
    omx_endpoint_addr_t address;
    uint64_t nic;
    uint32_t id;
    OK(omx_get_endpoint_addr(b, &address));
    OK(omx_decompose_endpoint_addr(address, &nic, &id));
    OK(omx_connect(a, nic, id, 0, LONG_MS, &address));
    return address;
}

static omx_status_t finish(omx_endpoint_t endpoint, omx_request_t *request)
{
    omx_status_t status;
    uint32_t result;
    OK(omx_wait(endpoint, request, &status, &result, LONG_MS));
    CHECK(result == 1);
    return status;
}

/* All of them fail with this code. */
static void nothing_opens(omx_return_t omx, mx_return_t mx)
{
    static uint32_t values[85];
    uint32_t board = 0;
    uint8_t byte = 0;
    omx_endpoint_t oe;
    mx_endpoint_t me;
    mx_raw_endpoint_t raw;
    RETURNS(omx_open_endpoint(0, OMX_ANY_ENDPOINT, 0, NULL, 0, &oe), omx);
    RETURNS(mx_open_endpoint(0, MX_ANY_ENDPOINT, 0, NULL, 0, &me), mx);
    RETURNS(omx_open_endpoint(OMX_ANY_NIC, 3, 0, NULL, 0, &oe), omx);
    RETURNS(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 0, NULL, 0, &me), mx);
    RETURNS(mx_raw_open_endpoint(0, NULL, 0, &raw), mx);
    RETURNS(omx_get_info(NULL, OMX_INFO_COUNTER_VALUES, &byte, 1, values, sizeof values), omx);
    RETURNS(mx_get_info(NULL, MX_COUNTERS_VALUES, &board, sizeof board, values, sizeof values), mx);
}

/* The daemon does not start. */
static void no_driver(void)
{
    nothing_opens(OMX_NO_DRIVER, MX_NO_DRIVER);
    setenv("OMX_OMXD", "/nonexistent/omxd", 1);
    nothing_opens(OMX_NO_DRIVER, MX_NO_DRIVER);
}

/* Board 0 cannot carry messages, and so no daemon starts for it. */
static void unusable(void)
{
    nothing_opens(OMX_BOARD_NOT_FOUND, MX_BOARD_UNKNOWN);
    setenv("OMX_OMXD", "/nonexistent/omxd", 1);
    nothing_opens(OMX_BOARD_NOT_FOUND, MX_BOARD_UNKNOWN);
}

/* What listens where the daemon should speaks another language. */
static void other_version(void)
{
    nothing_opens(OMX_BAD_KERNEL_ABI, MX_BAD_KERNEL_VERSION);
}

/* An ordinary user. */
static void no_permission(void)
{
    /* The daemon runs from now on, and does not end at once. */
    open_on(0, 0, &a);
    OK(omx_close_endpoint(a));
    CHECK(!setgid(65534) && !setuid(65534));
    /* Its socket is not for this user. */
    nothing_opens(OMX_ACCESS_DENIED, MX_NO_PERM);
    /* And where there is none this user may not start one. */
    setenv("OMX_RUN_DIR", "/nonexistent", 1);
    nothing_opens(OMX_ACCESS_DENIED, MX_NO_PERM);
}

/* With few descriptors left nothing opens, at whichever step they end; with enough it does. */
static void no_descriptors(void)
{
    struct rlimit limit;
    omx_endpoint_t oe;
    mx_endpoint_t me;
    mx_raw_endpoint_t raw;
    omx_return_t omx;
    mx_return_t mx;
    int failed = 0, first;
    open_on(0, 0, &a);
    first = dup(0);
    CHECK(first >= 0 && !close(first) && !getrlimit(RLIMIT_NOFILE, &limit));
    for (rlim_t more = 0;; more++) {
        limit.rlim_cur = (rlim_t)first + more;
        CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
        omx = omx_open_endpoint(0, 1, 0, NULL, 0, &oe);
        mx = mx_open_endpoint(0, 2, 0, NULL, 0, &me);
        if (omx == OMX_SUCCESS && mx == MX_SUCCESS)
            break;
        if (omx == OMX_SUCCESS)
            OK(omx_close_endpoint(oe));
        else
            RETURNS(omx, OMX_NO_SYSTEM_RESOURCES);
        /* The library's own thread gives its copies of the last one's back later: the second may find more. */
        if (mx == MX_SUCCESS)
            OK(mx_close_endpoint(me));
        else
            RETURNS(mx, MX_NO_RESOURCES);
        failed++;
        CHECK(more < 100);
    }
    CHECK(failed > 3);
    limit.rlim_cur = (rlim_t)first;
    OK(omx_close_endpoint(oe));
    OK(mx_close_endpoint(me));
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    RETURNS(mx_raw_open_endpoint(0, NULL, 0, &raw), MX_NO_RESOURCES);
}

/* The limits on what may be pending. */
static void too_much_pending(void)
{
    omx_endpoint_addr_t address;
    mx_endpoint_t m;
    mx_endpoint_addr_t mx_address;
    mx_request_t mx_request;
    mx_segment_t segment = {"x", 1};
    omx_seg_t seg = {"x", 1};
    omx_request_t request;
    omx_return_t omx = OMX_SUCCESS;
    mx_return_t mx = MX_SUCCESS;
    uint64_t nic;
    uint32_t id, count;
    open_on(0, 0, &a);
    open_on(1, 0, &b);
    OK(mx_open_endpoint(0, 1, 0, NULL, 0, &m));
    to_b = connected();
    OK(omx_decompose_endpoint_addr(to_b, &nic, &id));
    OK(mx_connect(m, nic, id, 0, LONG_MS, &mx_address));
    /* No message is taken. */
    OK(omx_disable_progression(b));
    for (count = 0; omx == OMX_SUCCESS; count++)
        omx = omx_isend(a, "x", 1, to_b, 1, NULL, NULL);
    RETURNS(omx, OMX_NO_RESOURCES);
    CHECK(count > 1000);
    RETURNS(omx_issend(a, "x", 1, to_b, 1, NULL, &request), OMX_NO_RESOURCES);
    RETURNS(omx_isendv(a, &seg, 1, to_b, 1, NULL, &request), OMX_NO_RESOURCES);
    RETURNS(omx_issendv(a, &seg, 1, to_b, 1, NULL, &request), OMX_NO_RESOURCES);
    for (count = 0; mx == MX_SUCCESS; count++)
        mx = mx_isend(m, &segment, 1, mx_address, 1, NULL, &mx_request);
    RETURNS(mx, MX_NO_RESOURCES);
    CHECK(count > 1000);
    RETURNS(mx_issend(m, &segment, 1, mx_address, 1, NULL, &mx_request), MX_NO_RESOURCES);
    for (omx = OMX_SUCCESS, count = 0; omx == OMX_SUCCESS; count++)
        omx = omx_iconnect(b, NOBODY, 0, 0, 1, NULL, &request);
    RETURNS(omx, OMX_NO_RESOURCES);
    CHECK(count > 1000);
    RETURNS(omx_connect(b, NOBODY, 0, 0, 1, &address), OMX_NO_RESOURCES);
    for (mx = MX_SUCCESS, count = 0; mx == MX_SUCCESS; count++)
        mx = mx_iconnect(m, NOBODY, 0, 0, 1, NULL, &mx_request);
    RETURNS(mx, MX_NO_RESOURCES);
    RETURNS(mx_connect(m, NOBODY, 0, 0, 1, &mx_address), MX_NO_RESOURCES);
    for (omx = OMX_SUCCESS, count = 0; omx == OMX_SUCCESS; count++)
        omx = omx_irecv(b, NULL, 0, count, ~(uint64_t)0, NULL, NULL);
    RETURNS(omx, OMX_NO_RESOURCES);
    CHECK(count > 100000);
    RETURNS(omx_irecvv(b, NULL, 0, 1, ~(uint64_t)0, NULL, &request), OMX_NO_RESOURCES);
    RETURNS(omx_iconnect(b, NOBODY, 0, 0, 1, NULL, &request), OMX_NO_RESOURCES);
    for (mx = MX_SUCCESS, count = 0; mx == MX_SUCCESS; count++)
        mx = mx_irecv(m, NULL, 0, count, ~(uint64_t)0, NULL, NULL);
    RETURNS(mx, MX_NO_RESOURCES);
    CHECK(count > 100000);
}

/* The two ends of the cable use other sizes. */
static void other_sizes(void)
{
    omx_endpoint_addr_t address;
    omx_request_t request;
    mx_endpoint_t m;
    mx_endpoint_addr_t mx_address;
    mx_request_t mx_request;
    mx_status_t mx_status;
    uint64_t nic;
    uint32_t result;
    setenv("OMX_PRESET", "native-1500", 1);
    open_on(0, 0, &a);
    OK(mx_open_endpoint(0, 1, 0, NULL, 0, &m));
    setenv("OMX_PRESET", "native-9000", 1);
    open_on(1, 0, &b);
    OK(omx_board_number_to_nic_id(1, &nic));
    RETURNS(omx_connect(a, nic, 0, 0, LONG_MS, &address), OMX_REMOTE_ENDPOINT_BAD_SESSION);
    RETURNS(mx_connect(m, nic, 0, 0, LONG_MS, &mx_address), MX_CONNECTION_FAILED);
    OK(omx_iconnect(a, nic, 0, 0, 1, NULL, &request));
    RETURNS(finish(a, &request).code, OMX_REMOTE_ENDPOINT_BAD_SESSION);
    OK(mx_iconnect(m, nic, 0, 0, 1, NULL, &mx_request));
    OK(mx_wait(m, &mx_request, LONG_MS, &mx_status, &result));
    CHECK(result == 1);
    RETURNS(mx_status.code, MX_STATUS_BAD_SESSION);
}

/* Boards that speak as MX does on the wire, and a program that asks before it opens anything. */
static void wire(void)
{
    uint32_t value = 0;
    setenv("OMX_PRESET", "wire", 1);
    setenv("OMX_RNDV_THRESHOLD", "1000000", 1);
    OK(mx_get_info(NULL, MX_LINE_SPEED, NULL, 0, &value, sizeof value));
    CHECK(value == MX_SPEED_10G);
    OK(mx_get_info(NULL, MX_COPY_SEND_MAX, NULL, 0, &value, sizeof value));
    CHECK(value == 32768);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*test)(void);
    } tests[] = {
        {"no-driver", no_driver},           {"other-version", other_version}, {"no-permission", no_permission},
        {"no-descriptors", no_descriptors}, {"pending", too_much_pending},    {"sizes", other_sizes},
        {"unusable", unusable},             {"wire", wire},
    };
    CHECK(argc == 2);
    mx_set_error_handler(MX_ERRORS_RETURN);
    omx_set_error_handler(NULL, OMX_ERRORS_RETURN);
    OK(omx_init());
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (!strcmp(argv[1], tests[i].name)) {
            tests[i].test();
            puts("failures done");
            return 0;
        }
    }
    return 2;
}
