/* A pair of programs that ask for ESP by name: `named serve PORT`, `named connect ADDRESS PORT` by IP, and
 * `named connect MAC PORT INTERFACE` by Ethernet. */
#include <arpa/inet.h>
#include <errno.h>
#include <esp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(int held, const char *what) {
    if (!held) {
        perror(what);
        exit(1);
    }
}

static int serve(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int listener = esp_socket(AF_INET);
    need(listener >= 0, "esp_socket");
    need(esp_bind(listener, (void *)&at, sizeof at) == 0, "esp_bind");
    need(esp_listen(listener, 4) == 0, "esp_listen");
    for (int count = 0; count < 2; count++) {
        int fd = esp_accept(listener, NULL, NULL);
        need(fd >= 0, "esp_accept");
        need(esp_is_esp(fd) == 1, "a connection by ESP");
        char first[4], second[8];
        struct iovec parts[2] = {{first, 4}, {second, 8}};
        struct pollfd one = {.fd = fd, .events = POLLIN};
        need(esp_poll(&one, 1, 10000) == 1, "esp_poll");
        ssize_t len = esp_recvv(fd, parts, 2);
        need(len == 12 && memcmp(first, "0123", 4) == 0, "esp_recvv");
        need(esp_sendv(fd, parts, 2) == 12, "esp_sendv");
        need(esp_recv(fd, first, 4, 0) == 0, "the end");
        need(esp_close(fd) == 0, "esp_close");
    }
    need(esp_close(listener) == 0, "esp_close");
    return 0;
}

/* Nonsense has the errno that it has for the kernel's sockets. */
static void refuses(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    need(esp_poll(&one, (nfds_t)-1, 0) == -1 && errno == EINVAL, "too many descriptors");
    need(esp_poll(NULL, 1, 0) == -1 && errno == EFAULT, "descriptors that are nowhere");
    need(esp_connect(-1, NULL, 0) == -1 && errno == EBADF, "no descriptor");
    need(esp_socket(AF_UNIX) == -1 && errno == EAFNOSUPPORT, "a family of another kind");
    int other = esp_socket(AF_INET6);
    need(other >= 0, "esp_socket");
    need(esp_connect(other, NULL, sizeof(struct sockaddr_in6)) == -1 && errno == EFAULT, "an address that is nowhere");
    need(esp_connect(other, NULL, 0) == -1 && errno == EINVAL, "no address");
    need(esp_close(other) == 0, "esp_close");
}

static int talk(int fd) {
    char bytes[12];
    need(esp_is_esp(fd) == 1, "a connection by ESP");
    refuses(fd);
    need(esp_send(fd, "0123456789ab", 12, 0) == 12, "esp_send");
    need(esp_recv(fd, bytes, 12, MSG_WAITALL) == 12, "esp_recv");
    need(memcmp(bytes, "0123456789ab", 12) == 0, "what came back");
    need(esp_shutdown(fd, SHUT_WR) == 0, "esp_shutdown");
    need(esp_recv(fd, bytes, 1, 0) == 0, "the end");
    need(esp_close(fd) == 0, "esp_close");
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3)
        return serve(atoi(arguments[2]));
    int fd = esp_socket(AF_INET);
    need(fd >= 0, "esp_socket");
    if (count == 4) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[3]))};
        need(inet_aton(arguments[2], &to.sin_addr), "an address");
        need(esp_connect(fd, (void *)&to, sizeof to) == 0, "esp_connect");
        return talk(fd);
    }
    struct esp_address to = {.family = ESP_AF_ENET, .port = htons(atoi(arguments[3])), .interface = if_nametoindex(arguments[4])};
    unsigned mac[6];
    need(sscanf(arguments[2], "%x:%x:%x:%x:%x:%x", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5) == 6, "an address");
    for (int at = 0; at < 6; at++)
        to.mac[at] = mac[at];
    need(esp_connect(fd, (void *)&to, sizeof to) == 0, "esp_connect");
    return talk(fd);
}
