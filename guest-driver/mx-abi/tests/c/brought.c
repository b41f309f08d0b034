/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What programs of others rely on: one header of the interface, <stdio.h> and nothing else. Compiled as C89 and everything later, and
 * as C++, with HEADER as each header: brought. */
#include <stdio.h>

#include HEADER

static int numbers(char *text)
{
    uint64_t nic = UINT64_C(0x0000021122334455), read = 0;
    int64_t difference = INT64_C(-1);
    uintptr_t bits = (uintptr_t)text;
    ssize_t len = sprintf(text, "%016" PRIx64 " %" PRId64 " %" PRIu64 " %" PRIxPTR, nic, difference, nic, bits);
    uint32_t half = 0;
    if (len < 0 || sscanf(text, "%" SCNx64, &read) != 1 || sscanf("5", "%" SCNu32, &half) != 1)
        return 0;
    return read == nic && half == 5 && strtoul(text, NULL, 16) == nic;
}

static int memory_and_strings(const char *name)
{
    struct pair { char first; uint32_t second; };
    size_t len = strlen(name);
    char *copy = (char *)calloc(1, len + 1);
    off_t at = (off_t)offsetof(struct pair, second);
    pid_t none = 0;
    int same;
    if (copy == NULL)
        abort();
    memcpy(copy, name, len);
    same = !strcmp(copy, name) && !memcmp(copy, name, len) && strchr(copy, ':') != NULL && atoi("7") == 7;
    memset(copy, 0, len);
    free(copy);
    return same && getenv("NO SUCH VARIABLE") == NULL && at == 4 && none == 0;
}

int main(void)
{
    char text[128];
    if (!numbers(text) || !memory_and_strings("node1:0"))
        exit(EXIT_FAILURE);
    puts("brought done");
    return EXIT_SUCCESS;
}
