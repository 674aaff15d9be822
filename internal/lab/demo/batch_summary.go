package demo

import (
	"fmt"
	"io"
)

// Limits of RunBatch's verdict.
const (
	batchSlower = 1.3 // factor on the p99 time to first token without batch
	batchKept   = .95 // share of the batch throughput without a queue
	batchHeld   = 2   // mean number of requests that wait inside an engine when a queue is in front
)

// BatchHeader is the table header of RunBatch.
func BatchHeader() string {
	return fmt.Sprintf("%-24s %8s %7s %24s %14s %16s", "", "requests", "failed", "first token p50/p90/p99", "batch tokens/s", "wait in engines")
}

// line formats a row of the table.
func (s *BatchSummary) line(r *BatchRow) string {
	first := fmt.Sprintf("%d / %d / %d ms", r.Quantile(.5).Milliseconds(), r.Quantile(.9).Milliseconds(), r.Quantile(.99).Milliseconds())
	return fmt.Sprintf("%-24s %8d %7d %24s %14.0f %16.1f", r.Name, r.Requests, r.Failed, first, r.TokensASecond, r.EnginesWaiting)
}

// Problems returns a sentence for each exceeded limit.
func (s *BatchSummary) Problems() (list []string) {
	for i := range s.Rows {
		if r := &s.Rows[i]; r.Failed > 0 || len(r.First) == 0 {
			list = append(list, fmt.Sprintf("%s: %d of %d requests failed, the last with: %v", r.Name, r.Failed, r.Requests, r.LastError))
		}
	}
	for i := range s.Rows {
		if r := &s.Rows[i]; r.BatchFailed > 0 {
			list = append(list, fmt.Sprintf("%s: %d batch requests failed, the last with: %v", r.Name, r.BatchFailed, r.BatchError))
		}
	}
	if len(s.Rows) < 3 {
		return append(list, "not all was measured")
	}
	alone, free, queued := &s.Rows[0], &s.Rows[1], &s.Rows[2]
	if x := float64(queued.Quantile(.99)) / float64(max(alone.Quantile(.99), 1)); x > batchSlower {
		list = append(list, fmt.Sprintf("the p99 first token beside batch is %.2f times that of interactive requests alone, more than %.1f", x, batchSlower))
	}
	most := batchHeld * float64(s.Engines)
	if free.EnginesWaiting <= most {
		list = append(list, fmt.Sprintf("%.1f requests wait in the engines without a queue: batch does not fill them, and nothing is shown", free.EnginesWaiting))
	}
	if queued.EnginesWaiting > most {
		list = append(list, fmt.Sprintf("%.1f requests wait in the engines behind the queue, more than %d in each", queued.EnginesWaiting, batchHeld))
	}
	if x := queued.TokensASecond / max(free.TokensASecond, 1); x < batchKept {
		list = append(list, fmt.Sprintf("batch requests get %.1f%% of the tokens that they get without a queue, less than %.0f%%", 100*x, 100*batchKept))
	}
	return list
}

// Write prints an explanation of the rows and the verdict.
func (s *BatchSummary) Write(w io.Writer) {
	fmt.Fprintf(w, "\n%d replicas, %d engines that run %d requests at once, %d batch users who ask again at once, %d interactive requests a second.\n",
		s.Replicas, s.Engines, s.Slots, batchUsers, chatRate)
	fmt.Fprintln(w, "wait in engines: mean number of requests in the engines' own queues.")
	problems := s.Problems()
	for _, p := range problems {
		fmt.Fprintln(w, "FAILED:", p)
	}
	if len(problems) == 0 {
		fmt.Fprintf(w, "OK: the p99 first token is within %.1f times that without batch, batch keeps %.0f%% of its tokens, and engines' own queues are short.\n",
			batchSlower, 100*batchKept)
	}
}
