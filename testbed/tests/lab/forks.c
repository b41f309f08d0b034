/* A program that forks while messages arrive: `forks` says its address and receives from one partner; `forks ADDRESS` is that partner.
 * Each child writes over its copy of the buffer, which the parent's message must not show. */
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "myriexpress.h"

#include "check.h"

#define KEY 0x77
#define ALL MX_MATCH_MASK_NONE
#define LONG_MS 60000

enum { LEN = 1 << 20, ROUNDS = 12, TESTS_PER_CHILD = 25, CHILDREN_MAX = 4 };

static mx_endpoint_t e;
static unsigned char bytes[LEN];

static mx_status_t finish(mx_request_t *request)
{
    mx_status_t status;
    uint32_t result;
    OK(mx_wait(e, request, LONG_MS, &status, &result));
    CHECK(result == 1 && status.code == MX_STATUS_SUCCESS);
    return status;
}

static void send(mx_endpoint_addr_t to, uint32_t len, uint64_t info)
{
    mx_segment_t segment = {bytes, len};
    mx_request_t request;
    OK(mx_isend(e, &segment, 1, to, info, NULL, &request));
    finish(&request);
}

static mx_status_t receive(uint32_t len, uint64_t info)
{
    mx_segment_t segment = {bytes, len};
    mx_request_t request;
    OK(mx_irecv(e, &segment, 1, info, ALL, NULL, &request));
    return finish(&request);
}

static void child(int number)
{
    memset(bytes, 0xff, LEN);
    /* With and without what a program does at its end. */
    if (number % 2)
        exit(0);
    _exit(0);
}

/* Forks while the message comes, then checks it. */
static int receive_and_fork(uint64_t info)
{
    mx_segment_t segment = {bytes, LEN};
    mx_request_t request;
    mx_status_t status;
    uint32_t result = 0;
    int children = 0, code;
    memset(bytes, 0, LEN);
    OK(mx_irecv(e, &segment, 1, info, ALL, NULL, &request));
    for (unsigned tests = 1; !result; tests++) {
        OK(mx_test(e, &request, &status, &result));
        if (tests % TESTS_PER_CHILD || children == CHILDREN_MAX)
            continue;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid)
            child(children);
        children++;
    }
    CHECK(status.code == MX_STATUS_SUCCESS && status.xfer_length == LEN);
    CHECK(filled(bytes, LEN, info));
    for (int i = 0; i < children; i++)
        CHECK(wait(&code) > 0 && code == 0);
    /* No child has touched it since. */
    CHECK(filled(bytes, LEN, info));
    return children;
}

int main(int argc, char **argv)
{
    mx_endpoint_addr_t peer;
    uint64_t nic;
    int children = 0;
    mx_set_error_handler(MX_ERRORS_RETURN);
    OK(mx_init());
    OK(mx_open_endpoint(0, argc > 1 ? MX_ANY_ENDPOINT : 0, KEY, NULL, 0, &e));
    if (argc > 1) {
        OK(mx_connect(e, strtoull(argv[1], NULL, 16), 0, KEY, LONG_MS, &peer));
        send(peer, 0, 0);
        for (uint64_t round = 1; round <= ROUNDS; round++) {
            fill(bytes, LEN, round);
            send(peer, LEN, round);
        }
        receive(0, 0);
    } else {
        OK(mx_board_number_to_nic_id(0, &nic));
        printf("%llx\n", (unsigned long long)nic);
        fflush(stdout);
        peer = receive(0, 0).source;
        for (uint64_t round = 1; round <= ROUNDS; round++)
            children += receive_and_fork(round);
        CHECK(children > 0);
        send(peer, 0, 0);
    }
    OK(mx_close_endpoint(e));
    OK(mx_finalize());
    puts("forks done");
    return 0;
}
