package server

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/internal/cli"
	"github.com/grapevine-epp/grapevine/picker"
	"github.com/grapevine-epp/grapevine/picker/explanation"
)

// Limits of the log of decisions.
const (
	decisionLogEvery = time.Second
	mostLogged       = 100 // lines in that time
	mostAwaited      = 4096
	awaitOutcome     = 5 * time.Minute // then a line is written without the outcome
)

// decisionLog writes a sample of the stored decisions to the log, once their requests have ended. It reads the
// store, so it costs requests nothing. It is used by one goroutine.
type decisionLog struct {
	records *picker.Records
	share   float64 // of the decisions
	sign    func(*explanation.Explanation)
	log     *slog.Logger

	next    uint64   // first decision that was not seen
	awaited []uint64 // sampled decisions whose requests have not ended
	omitted int      // lines that were too many since the last one
}

// run writes lines until ctx ends.
func (l *decisionLog) run(ctx context.Context) {
	ticker := time.NewTicker(decisionLogEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l.step(now)
		}
	}
}

// step writes the lines that are due.
func (l *decisionLog) step(now time.Time) {
	end := l.records.Next()
	for ; l.next < end; l.next++ {
		switch {
		case !sampled(l.next, l.share):
		case len(l.awaited) >= mostAwaited:
			l.omitted++
		default:
			l.awaited = append(l.awaited, l.next)
		}
	}
	kept, lines := l.awaited[:0], 0
	for _, n := range l.awaited {
		e, ok := l.records.Numbered(n)
		switch {
		case !ok || lines >= mostLogged:
			l.omitted++
		case e.Outcome == nil && e.Refused == "" && now.Sub(e.At) < awaitOutcome:
			kept = append(kept, n)
		default:
			l.write(&e)
			lines++
		}
	}
	l.awaited = kept
}

// sampled reports whether a decision is in the sample. Numbers that follow each other are independent.
func sampled(number uint64, share float64) bool {
	const golden = 0x9e3779b97f4a7c15
	return float64(number*golden>>11)/(1<<53) < share
}

// write writes the line of a decision.
func (l *decisionLog) write(e *explanation.Explanation) {
	l.sign(e)
	attrs := []slog.Attr{
		slog.String("decision", e.Decision), slog.String("request_id", e.RequestID), slog.Time("at", e.At), slog.String("model", e.Model),
		slog.Int("prompt_tokens", e.InputTokens), slog.Int("priority", e.Priority),
	}
	add := func(a ...slog.Attr) { attrs = append(attrs, a...) }
	if e.Refused != "" {
		add(slog.String("refused", e.Refused))
	} else {
		add(slog.String("endpoint", e.Choice), slog.String("runner_up", e.RunnerUp), slog.Float64("margin", math.Round(e.Margin*1e6)/1e6),
			slog.Float64("predicted_ms", e.Predicted.TTFT), slog.Float64("cost_to_others_ms", e.Predicted.Others))
	}
	if o := e.Outcome; o != nil {
		add(slog.Int("status", o.Status), slog.String("served", o.Served), slog.Float64("took_ms", o.Took))
		if o.TTFT > 0 { // observed
			add(slog.Float64("first_token_ms", o.TTFT))
		}
		if o.PromptTokens > 0 || o.OutputTokens > 0 { // reported by the engine
			add(slog.Int("cached_tokens", o.CachedTokens), slog.Int("output_tokens", o.OutputTokens))
		}
		if o.Failed != "" {
			add(slog.String("failed_over", o.Failed))
		}
		if o.Against != "" {
			add(slog.String("against", o.Against))
		}
	}
	if l.omitted > 0 {
		add(slog.Int("omitted", l.omitted))
		l.omitted = 0
	}
	l.log.LogAttrs(cli.Single(context.Background()), slog.LevelInfo, "decision", attrs...)
}
