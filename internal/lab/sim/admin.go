package sim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/grapevine-epp/grapevine/internal/lab/engine"
	"github.com/grapevine-epp/grapevine/internal/lab/kvstream"
	"github.com/grapevine-epp/grapevine/internal/lab/sim/faults"
)

type loraRequest struct {
	Name string `json:"lora_name"`
	Path string `json:"lora_path"`
}

func (e *Engine) loadLoRA(w *responder, r *http.Request) {
	var q loraRequest
	if !w.decode(r, &q) {
		return
	}
	switch {
	case q.Name == "" || q.Path == "":
		w.fail(badRequest("", "Both 'lora_name' and 'lora_path' must be provided."))
	case !e.lora.Load(q.Name):
		w.fail(badRequest("", "The lora adapter '%s' has already been loaded.", q.Name))
	default:
		_, _ = fmt.Fprintf(w, "Success: LoRA adapter '%s' added successfully.", q.Name)
	}
}

func (e *Engine) unloadLoRA(w *responder, r *http.Request) {
	var q loraRequest
	if !w.decode(r, &q) {
		return
	}
	if !e.lora.Unload(q.Name) {
		w.fail(&apiError{http.StatusNotFound, errNotFound, fmt.Sprintf("The lora adapter '%s' cannot be found.", q.Name), ""})
		return
	}
	_, _ = fmt.Fprintf(w, "Success: LoRA adapter '%s' removed successfully.", q.Name)
}

// resetPrefixCache clears the caches that are not in use. Like the real engine's, the response does
// not report whether any were.
func (e *Engine) resetPrefixCache(w *responder, _ *http.Request) {
	for _, c := range w.st.cores {
		c.ResetCache()
	}
	w.WriteHeader(http.StatusOK)
}

func (e *Engine) getFaults(w *responder, _ *http.Request) { w.send(http.StatusOK, e.Faults()) }

func (e *Engine) putFaults(w *responder, r *http.Request) {
	var q faultsRequest
	if !w.decode(r, &q) {
		return
	}
	f := q.Faults
	f.Events = q.Events.Faults
	f.Events.Delay = time.Duration(q.Events.Delay)
	f.Up, f.Down, f.ListDelay = time.Duration(q.Up), time.Duration(q.Down), time.Duration(q.ListDelay)
	if !f.Hang.Known() {
		w.fail(badRequest("hang", "hang is %q, want \"\", %q, %q or %q", f.Hang, faults.HangEngine, faults.HangAll, faults.HangFrozen))
		return
	}
	if !f.Answer.Known() {
		w.fail(badRequest("answer", "answer is %q, want \"\", %q, %q, %q, %q, %q, %q or %q", f.Answer, faults.AnswerAbort, faults.AnswerEmpty, faults.AnswerHalf, faults.AnswerModel, faults.AnswerNoise, faults.AnswerShort, faults.AnswerCut))
		return
	}
	if q.For > 0 { // the only way out of some
		time.AfterFunc(time.Duration(q.For), func() { e.SetFaults(faults.Faults{}) })
	}
	e.SetFaults(f)
	w.send(http.StatusOK, e.Faults())
}

// postRestart answers, then restarts.
func (e *Engine) postRestart(w *responder, r *http.Request) {
	var q restartRequest
	if !w.decode(r, &q) {
		return
	}
	o := q.RestartOptions
	o.Down = time.Duration(q.Down)
	e.background(func() {
		time.Sleep(20 * time.Millisecond) // the answer leaves first
		if err := e.Restart(o); err != nil {
			e.log.Error("restart", "engine", e.Name(), "err", err)
		}
	})
	w.WriteHeader(http.StatusAccepted)
}

// duration is written as "1.5s" or as a number of nanoseconds.
type duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return json.Unmarshal(raw, (*int64)(d))
	}
	v, err := time.ParseDuration(text)
	*d = duration(v)
	return err
}

// faultsRequest is Faults with durations that people can write. With For they
// end by themselves.
type faultsRequest struct {
	faults.Faults
	Up   duration `json:"up"`
	Down duration `json:"down"`
	For  duration `json:"for"`

	ListDelay duration `json:"list_delay"`

	Events struct {
		kvstream.Faults
		Delay duration `json:"delay"`
	} `json:"events"`
}

// restartRequest is RestartOptions with durations that people can write.
type restartRequest struct {
	RestartOptions
	Down duration `json:"down"`
}

// RankStats are the figures of one data-parallel rank.
type RankStats struct {
	Engine engine.Stats   `json:"engine"`
	Events kvstream.Stats `json:"events"`
}

// Stats returns the figures of every rank; none while the engine is down.
func (e *Engine) Stats() []RankStats {
	st := e.current()
	if st == nil {
		return nil
	}
	return st.stats()
}

func (st *incarnation) stats() (ranks []RankStats) {
	for i, c := range st.cores {
		s := RankStats{Engine: c.Meter().Stats()}
		if i < len(st.pubs) {
			s.Events = st.pubs[i].Stats()
		}
		ranks = append(ranks, s)
	}
	return ranks
}

func (e *Engine) getStats(w *responder, _ *http.Request) { w.send(http.StatusOK, w.st.stats()) }
