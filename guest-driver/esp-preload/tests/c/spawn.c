/* Starts programs by posix_spawn, system and popen that get a connection to a server which sends back all it is sent. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define MUST(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

static int connection(const char *address, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	MUST(fd >= 0 && inet_pton(AF_INET, address, &to.sin_addr) == 1);
	MUST(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

/* Reads what must come next. */
static void expect(int fd, const char *text)
{
	char got[256] = "";
	size_t len = strlen(text), at = 0;
	while (at < len) {
		ssize_t part = read(fd, got + at, len - at);
		MUST(part > 0);
		at += part;
	}
	if (memcmp(got, text, len) != 0) {
		fprintf(stderr, "wanted %s, got %s\n", text, got);
		exit(1);
	}
}

static void say(int fd, const char *text)
{
	MUST(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static void ended(pid_t child)
{
	int status;
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A program gets the connection as its input and output. */
static void spawned(int fd, int by_path)
{
	posix_spawn_file_actions_t actions;
	char *arguments[] = { "sh", "-c", "echo one; read word; test \"$word\" = one && echo two", NULL };
	pid_t child;
	MUST(posix_spawn_file_actions_init(&actions) == 0);
	MUST(posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0);
	MUST(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0);
	MUST((by_path ? posix_spawnp(&child, "sh", &actions, NULL, arguments, environ)
		      : posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ)) == 0);
	ended(child);
	posix_spawn_file_actions_destroy(&actions);
	expect(fd, "two\n");
	say(fd, "three\n");
	expect(fd, "three\n");
}

/* A program gets nothing: the connection stays this one's. */
static void kept(int fd)
{
	char *arguments[] = { "true", NULL };
	pid_t child;
	say(fd, "before\n");
	MUST(posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0);
	ended(child);
	MUST(system("true") == 0);
	FILE *pipe = popen("echo out", "r");
	MUST(pipe && fgetc(pipe) == 'o' && pclose(pipe) == 0);
	expect(fd, "before\n");
	say(fd, "after\n");
	expect(fd, "after\n");
}

/* Programs that the C library starts in its inside get the connection as their output. */
static void shared(int fd)
{
	int output = dup(1), errors = dup(2);
	MUST(dup2(fd, 1) == 1);
	say(fd, "mine\n");
	MUST(system("echo shell") == 0);
	MUST(dup2(output, 1) == 1);
	say(fd, "again\n");
	expect(fd, "mine\nshell\nagain\n");
	MUST(dup2(fd, 2) == 2);
	FILE *pipe = popen("echo piped >&2", "w");
	MUST(pipe && pclose(pipe) == 0);
	MUST(dup2(errors, 2) == 2);
	expect(fd, "piped\n");
}

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	int fd = connection(words[2], words[3]);
	if (strcmp(words[1], "spawn") == 0)
		spawned(fd, 0);
	else if (strcmp(words[1], "spawnp") == 0)
		spawned(fd, 1);
	else if (strcmp(words[1], "keep") == 0)
		kept(fd);
	else
		shared(fd);
	close(fd);
	puts("good");
	return 0;
}
