/* results.json from anyone: read, worked out, and written as a table and as CSV. */
#include <stdint.h>
#include <stdio.h>

#include "report/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pq_why why;
    DEFER(pq_report_freep) struct pq_report *r = NULL;
    if (pq_report_parse("input", pq_span(data, size), &r, &why) < 0)
        return 0;
    DEFER(pq_out_free) struct pq_out csv = {.buf.cap = 16 << 20};
    if (pq_report_csv(&r, 1, &csv) < 0)
        return 0;
    DEFER(pq_freep) char *text = NULL;
    size_t len;
    DEFER(pq_fclosep) FILE *f = open_memstream(&text, &len);
    int e = f ? pq_report_print(&r, 1, f, 80, true) : PQ_E_NOMEM;
    if (e == 0)
        e = pq_report_compare(r, r, f, &why);
    (void)e; /* two runs without an interval can't be compared, which is fine */
    return 0;
}
