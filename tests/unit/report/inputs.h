/* inputs.h - results.json for tests: figures by a rule, nobody's measurement.
 *
 * Spec:   results.json, schema 1.
 * Owns:   the caller frees the struct pq_out.
 * Errors: kept in out->error.
 */
#ifndef PQ_TESTS_REPORT_INPUTS_H
#define PQ_TESTS_REPORT_INPUTS_H

#include "base/random.h"
#include "report/text.h"

/* One cell with one metric: `rounds` rounds of three samples around `value`, at most `spread` away. */
struct input_cell {
    const char *factors; /* JSON: "\"d\":\"a\"" */
    const char *metric, *unit;
    double value, spread;
    unsigned rounds;
    uint64_t seed; /* 0: the same pattern in each cell; else drawn at random */
};

static inline void input_string(struct pq_out *o, const char *text)
{
    pq_out(o, "\"");
    for (; *text; text++) {
        if (*text == '\n')
            pq_out(o, "\\n");
        else
            pq_outf(o, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    }
    pq_out(o, "\"");
}

static inline void input_metric(struct pq_out *o, const struct input_cell *c)
{
    static const double offset[] = {-1, 0.2, 0.8};
    struct pq_rng rng = pq_rng(c->seed);
    pq_outf(o, "\"%s\":{\"unit\":\"%s\",\"samples\":[", c->metric, c->unit);
    for (unsigned i = 0; i < 3 * c->rounds; i++) {
        double away = c->seed ? 2 * pq_rng_unit(&rng) - 1 : (offset[i % 3] + 0.1 * ((i / 3) % 3)) / 1.2;
        pq_outf(o, "%s%.9g", i ? "," : "", c->value + c->spread * away);
    }
    pq_out(o, "],\"rounds\":[");
    for (unsigned i = 0; i < 3 * c->rounds; i++)
        pq_outf(o, "%s%u", i ? "," : "", i / 3);
    pq_out(o, "],\"at_ms\":[");
    for (unsigned i = 0; i < 3 * c->rounds; i++)
        pq_outf(o, "%s%u", i ? "," : "", 10 * i);
    pq_out(o, "]}");
}

static inline void input_results(struct pq_out *o, const char *experiment, const char *published,
                                 const struct input_cell *cells, size_t count)
{
    pq_out(o, "{\"schema\":1,\"pqplane\":\"0-test\",\"seed\":7,\"started\":\"2026-01-01T00:00:00Z\",\"finished\":\"\","
              "\"complete\":true,\"quick\":false,\"experiment\":{\"name\":\"x\",\"text\":");
    input_string(o, experiment);
    pq_out(o, ",\"published\":");
    if (published) {
        pq_out(o, "{\"file\":\"p.yaml\",\"text\":");
        input_string(o, published);
        pq_out(o, "}");
    } else {
        pq_out(o, "null");
    }
    pq_out(o,
           "},\"host\":{\"cpu\":\"none\",\"cores\":2},\"libraries\":{},\"command\":\"test\",\"rounds\":10,\"cells\":[");
    for (size_t i = 0; i < count; i++) {
        pq_outf(o, "%s{\"factors\":{%s},\"metrics\":{", i ? "," : "", cells[i].factors);
        input_metric(o, &cells[i]);
        pq_out(o, "},\"errors\":[{\"reason\":\"reset\",\"count\":1}]}");
    }
    pq_out(o, "],\"calibration\":[{\"round\":0,\"at_ms\":0,\"work_ms\":1.5,\"steal_ms\":0},"
              "{\"round\":1,\"at_ms\":9,\"work_ms\":1.6,\"steal_ms\":0}],\"notes\":[\"a note\"]}");
}

#endif
