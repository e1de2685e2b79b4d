/* The least that can be called an engine: tells when its main began, answers /health, sleeps.
 *
 * It takes the flags of the stub engine of the tests (--stub-announce, --stub-load, --host, --port,
 * --stub-reuse-port, --stub-loading refuse, --stub-health silent, --stub-defer-accept,
 * --stub-children detached+deaf, --stub-children-file) and ignores all others, so that either can be
 * launched in the other's place. Its announcement is "PID MONOTONIC_NS"; with a load of L seconds it answers
 * 503 until that moment + L, and 200 from then on. It ends by itself after --stub-life seconds. */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static const char *knob(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (!strcmp(argv[i], name)) return argv[i + 1];
    return otherwise;
}

static void announce(const char *path, long long began) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char text[64];
    int size = snprintf(text, sizeof text, "%d %lld\n", (int)getpid(), began);
    int link = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    strncpy(to.sun_path, path, sizeof to.sun_path - 1);
    sendto(link, text, size, 0, (struct sockaddr *)&to, sizeof to);
    close(link);
}

/* A grandchild that left the session and lost its parent, and does not hear TERM. */
static void bear(const char *told, int life) {
    int ends[2], pid = 0;
    if (pipe(ends)) return;
    pid_t child = fork();
    if (!child) {
        setsid();
        if (fork()) _exit(0);
        signal(SIGTERM, SIG_IGN);
        alarm(life);
        pid = getpid();
        write(ends[1], &pid, sizeof pid);
        for (;;) pause();
    }
    waitpid(child, NULL, 0);
    read(ends[0], &pid, sizeof pid);
    close(ends[0]);
    close(ends[1]);
    FILE *file = told ? fopen(told, "w") : NULL;
    if (!file) return;
    fprintf(file, "%d\n", pid);
    fclose(file);
}

static int answer(int client, long long ready_at, int silent) {
    static const char yes[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                              "Content-Length: 16\r\n\r\n{\"status\": \"ok\"}";
    static const char no[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                             "Content-Length: 21\r\n\r\n{\"status\": \"loading\"}";
    char request[4096];
    ssize_t size = recv(client, request, sizeof request, 0); /* ours come whole, in one piece */
    if (size <= 0) return 0;
    if (silent) return 1;
    const char *reply = now_ns() >= ready_at ? yes : no;
    return send(client, reply, strlen(reply), MSG_NOSIGNAL) > 0;
}

static void serve(int listener, long long ready_at, int silent) {
    struct pollfd fds[64] = {{.fd = listener, .events = POLLIN}};
    int count = 1;
    for (;;) {
        poll(fds, count, -1);
        for (int i = count - 1; i > 0; i--) {
            if (!fds[i].revents || answer(fds[i].fd, ready_at, silent)) continue;
            close(fds[i].fd);
            fds[i] = fds[--count];
        }
        if (fds[0].revents && count < 64) {
            int client = accept(listener, NULL, NULL);
            if (client >= 0) fds[count++] = (struct pollfd){.fd = client, .events = POLLIN};
        }
    }
}

int main(int argc, char **argv) {
    long long began = now_ns();
    const char *told = knob(argc, argv, "--stub-announce", NULL);
    if (told) announce(told, began);
    int life = atoi(knob(argc, argv, "--stub-life", "600"));
    alarm(life);
    if (!strcmp(knob(argc, argv, "--stub-children", ""), "detached+deaf"))
        bear(knob(argc, argv, "--stub-children-file", NULL), life);
    int port = atoi(knob(argc, argv, "--port", "0"));
    double load = atof(knob(argc, argv, "--stub-load", "0"));
    if (!strcmp(knob(argc, argv, "--stub-loading", "503"), "refuse")) usleep(load * 1e6);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, knob(argc, argv, "--host", "127.0.0.1"), &at.sin_addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (knob(argc, argv, "--stub-reuse-port", NULL))
        setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (!port) for (;;) pause();
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 128)) {
        perror("bind");
        return 1;
    }
    if (knob(argc, argv, "--stub-defer-accept", NULL)) for (;;) pause();
    serve(listener, began + (long long)(load * 1e9),
          !strcmp(knob(argc, argv, "--stub-health", "ok"), "silent"));
}
