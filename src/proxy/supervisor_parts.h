/* supervisor_parts.h - what the files of the supervisor share: its state, its workers, what it loads.
 *
 * Spec:   supervisor.h.
 * Owns:   see supervisor.h.
 * Errors: see supervisor.h.
 */
#ifndef PQ_PROXY_SUPERVISOR_PARTS_H
#define PQ_PROXY_SUPERVISOR_PARTS_H

#include <ev.h>

#include "proxy/bundle.h"
#include "proxy/child.h"
#include "proxy/contain.h"
#include "proxy/listening.h"
#include "proxy/resolver.h"
#include "proxy/restart.h"
#include "proxy/shared.h"
#include "proxy/supervisor.h"
#include "proxy/watch.h"

enum pq_supervisor_phase {
    PQ_STARTING, /* nobody has been told that it is ready */
    PQ_SERVING,
    PQ_RETIRING, /* a new supervisor serves; the workers stay until their connections end */
    PQ_DRAINING,
    PQ_ENDING /* a second signal came, or it can't start */
};

/* A worker, as its supervisor sees it; one a slot of the shared memory. */
struct pq_supervised {
    struct pq_supervisor *supervisor;
    size_t slot;
    struct pq_child child;
    int packed;          /* in the worker: the bundle, -1: it needs none before the first generation */
    bool wanted;         /* else it is retired, or there is none */
    bool drained;        /* accepts no more */
    int64_t open;        /* connections when it stopped accepting */
    uint64_t generation; /* that it serves; 0: none yet */
    uint64_t socket;     /* the highest number of a listening socket that it was sent */
    int64_t listing;     /* number of the request that it lists its connections for; 0: none */
    int refused;         /* why it can't serve; 0: it did not say so */
    struct pq_why why;
    struct pq_restart restart;
    ev_timer again; /* starts it, or sends it the generation, once more */
};

/* A configuration on its way to the workers: read, checked in a child, given out. */
struct pq_loading {
    enum { PQ_LOADING_NOTHING, PQ_LOADING_CHECK, PQ_LOADING_APPLY } step;
    const char *cause; /* for the log */
    bool again;        /* once more, when this is done */
    struct pq_bundle bundle;
    struct pq_child check;
    int refused; /* why the check failed */
    bool passed;
    int view; /* what the check wrote of it; -1: nothing */
    struct pq_why why;
    ev_timer limit;
};

/* Requests for a reload that came while one was under way are answered after the next. */
enum { PQ_ADMIN_RELOADS_MAX = 64 };
struct pq_admin_reloads {
    int64_t number[PQ_ADMIN_RELOADS_MAX];
    size_t count;
};

/* The admin process, and what it has asked. */
struct pq_admin_link {
    struct pq_child child;
    struct pq_listening_set listening; /* of one, or none */
    int view;                          /* what it shows of the configuration; -1: nothing yet */
    struct pq_admin_reloads now, later;
    int64_t listing; /* number of its request for the connections; 0: none */
    int rows;        /* the file that workers write them to */
    ev_timer limit;  /* of that */
    struct pq_restart restart;
    ev_timer again;
};

/* The supervisor that takes this one's place. */
struct pq_upgrade {
    enum { PQ_UPGRADE_NOTHING, PQ_UPGRADE_BEGUN, PQ_UPGRADE_DONE } step;
    bool wanted; /* once what is being loaded is in force */
    pid_t pid;   /* 0: none */
    int channel; /* -1: none */
    size_t sent; /* things handed over */
    ev_io io;
    ev_timer limit;
};

/* The supervisor whose place this one took. */
struct pq_previous {
    int channel; /* -1: none, or it has ended */
    ev_io io;
};

struct pq_supervisor {
    const struct pq_supervisor_how *how;
    struct ev_loop *loop;
    struct pq_shared *shared;
    enum pq_supervisor_phase phase;
    struct pq_loading loading;
    struct pq_admin_link admin;
    struct pq_upgrade upgrade;
    struct pq_previous previous;
    /* What is served. */
    struct pq_proxy_config config;
    struct pq_contain contain;
    struct pq_listening_set listening;
    struct pq_listening_set removed; /* no longer used, to be closed */
    uint64_t generation;
    int packed; /* the bundle; -1 before there is one */
    struct pq_watch *watch;
    struct pq_resolver *resolver;
    ev_timer look, keys;
    int log_fd, ready_fd;
    const char *drained_by; /* a signal's name, or who asked */
    bool told;              /* that it drains */
    int error;              /* what it ends with */
    struct pq_why *why;
    ev_signal signals[5];
    ev_timer kill; /* what is left of the children */
    struct pq_supervised worker[PQ_SHARED_SLOTS];
};

/* --- crew.c: the workers ----------------------------------------------------------------------------------------- */
void pq_crew_init(struct pq_supervisor *s);
/* As many as the configuration says: starts those that are missing, retires those that are too many. */
PQ_MUST_CHECK int pq_crew_fit(struct pq_supervisor *s, struct pq_why *why);
/* All workers get the newest generation, retired ones too. */
void pq_crew_give(struct pq_supervisor *s);
/* All that are wanted and live serve it; at the start, all that are wanted. */
bool pq_crew_ready(const struct pq_supervisor *s);
void pq_crew_tell(struct pq_supervisor *s, const struct pq_control_message *m);
/* To those that serve the newest generation; others get it when they do. */
void pq_crew_lead(struct pq_supervisor *s, size_t listener);
/* All stop accepting, and end with their last connection. */
void pq_crew_retire(struct pq_supervisor *s);
/* None is started again. */
void pq_crew_dismiss(struct pq_supervisor *s);
void pq_crew_reap(struct pq_supervisor *s);
void pq_crew_kill(struct pq_supervisor *s);
size_t pq_crew_living(const struct pq_supervisor *s);

/* --- loading.c --------------------------------------------------------------------------------------------------- */
void pq_loading_init(struct pq_supervisor *s);
/* A failure is told in the log and changes nothing; at the start it ends the supervisor. always: also where no file
 * has changed. */
void pq_loading_begin(struct pq_supervisor *s, const char *cause, bool always);
/* What came while an upgrade was tried. */
void pq_loading_resume(struct pq_supervisor *s);
void pq_loading_look_whether_applied(struct pq_supervisor *s);
void pq_loading_reap(struct pq_supervisor *s);
void pq_loading_stop(struct pq_supervisor *s);

/* --- upgrade.c ---------------------------------------------------------------------------------------------------- */
void pq_upgrade_init(struct pq_supervisor *s);
void pq_upgrade_free(struct pq_supervisor *s);
/* The old one: starts another of its program, as it lies there now, and hands over. Whatever fails, this one goes on.
 */
void pq_upgrade_begin(struct pq_supervisor *s);
void pq_upgrade_reap(struct pq_supervisor *s);
void pq_upgrade_stop(struct pq_supervisor *s);
/* The new one: takes over where it was started for that, tells that it serves, or why not. */
PQ_MUST_CHECK int pq_upgrade_receive(struct pq_supervisor *s, struct pq_why *why);
void pq_upgrade_serving(struct pq_supervisor *s);
void pq_upgrade_refuse(struct pq_supervisor *s, int e, const struct pq_why *why);
/* To the old one, while it has connections: "reload", "log", "drain", "stop". */
void pq_upgrade_pass_on(struct pq_supervisor *s, const char *word);
/* Waits for it no longer. */
void pq_upgrade_give_up(struct pq_supervisor *s);

/* --- admin_link.c ------------------------------------------------------------------------------------------------- */
void pq_admin_link_init(struct pq_supervisor *s);
/* Its listening socket, where the configuration has one. */
PQ_MUST_CHECK int pq_admin_link_open(struct pq_supervisor *s, const struct pq_proxy_config *config, struct pq_why *why);
/* What was loaded is in force, or (e, why) was refused. */
void pq_admin_link_loaded(struct pq_supervisor *s, int e, const struct pq_why *why);
/* A worker has listed its connections, or is gone. */
void pq_admin_link_listed(struct pq_supervisor *s);
void pq_admin_link_tell(struct pq_supervisor *s, const struct pq_control_message *m);
void pq_admin_link_reap(struct pq_supervisor *s);
/* Another supervisor's answers from now on. */
void pq_admin_link_dismiss(struct pq_supervisor *s);
/* Ends it and waits for that. */
void pq_admin_link_end(struct pq_supervisor *s);
/* Of this process alone; its path goes only where it ends too. */
void pq_admin_link_free(struct pq_supervisor *s, bool ends);

/* --- supervisor.c ------------------------------------------------------------------------------------------------ */
/* In a child: closes and frees what is the supervisor's alone. */
void pq_supervisor_leave(void *supervisor);
/* Or its second time: ends at once. */
void pq_supervisor_drain(struct pq_supervisor *s, const char *cause);
/* Log files were renamed. */
void pq_supervisor_reopen_log(struct pq_supervisor *s);
/* How it stands, to the service manager. */
void pq_supervisor_tell_manager(const struct pq_supervisor *s);
/* Another serves now. */
void pq_supervisor_retire(struct pq_supervisor *s);
/* A generation is served by all workers. */
void pq_supervisor_applied(struct pq_supervisor *s);
/* It can't go on. */
void pq_supervisor_end(struct pq_supervisor *s, int error, const struct pq_why *why);
/* Workers have stopped accepting, or ended. */
void pq_supervisor_look(struct pq_supervisor *s);

#endif
