package flightrecorder

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/trace"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Interval is the minimum time between two records of the same trigger.
const Interval = 5 * time.Minute

// partTime limits how long a record waits for a part. Parts of a stalled process may never end.
const partTime = 2 * time.Second

// Limits of one record.
const (
	maxPart = 8 << 20 // bytes of a part
	// traceRate is the assumed size of the execution trace in bytes per second.
	traceRate = 1 << 20
	minTrace  = 256 << 10
	// traceAfter is the length of a trace that starts with its record.
	traceAfter = time.Second
)

// Trigger is why a record is made.
type Trigger uint8

// Triggers.
const (
	Request Trigger = iota // an operator requested it
	Health                 // the process left the state ready, or stalled
	Slow                   // a decision was slow
	numTriggers
)

var triggerNames = [numTriggers]string{"request", "health", "slow_decision"}

// String returns the trigger's metric label.
func (t Trigger) String() string { return triggerNames[t] }

// Reasons why records were not made or are no longer stored, as in metrics.
const (
	droppedRecent = "recent" // the trigger made a record less than Interval ago
	droppedBusy   = "busy"   // another record was being made
	droppedSize   = "size"   // larger than all stored records may be
	droppedOld    = "old"    // removed for a newer record
	droppedError  = "error"  // it could not be written
)

// ErrBusy is returned while another record is being made.
var ErrBusy = errors.New("flightrecorder: another record is being made")

// Part is one file of a record. Make must be safe to call on any goroutine, and must not return
// prompts, header values or secrets.
type Part struct {
	Name string
	Make func(ctx context.Context) ([]byte, error)
}

// Options configure a Recorder.
type Options struct {
	// Dir is the folder for records; "" keeps them in memory, and so does a folder that cannot be
	// used.
	Dir string
	// Trace is the length of the execution trace before a record. The trace runs all the time and
	// takes processor time. With 0, the trace of a record covers the second after its trigger, and
	// nothing runs before.
	Trace    time.Duration
	Count    int   // maximum number of stored records; default 8
	Bytes    int64 // maximum size of records in memory; default 32 MiB
	DirBytes int64 // maximum size of records in the folder; default 64 MiB

	Name     string // of the process, in names of records
	Parts    []Part
	Secrets  func() [][]byte // removed from all parts wherever they appear; may be nil
	Log      *slog.Logger    // nil discards
	Registry prometheus.Registerer
}

// Recorder makes and stores records. A nil Recorder ignores triggers. Safe for concurrent use.
type Recorder struct {
	o       Options
	now     func() time.Time
	store   *store
	trace   *trace.FlightRecorder // nil: none runs all the time
	config  trace.FlightRecorderConfig
	parts   []*part
	last    [numTriggers]atomic.Int64 // Unix nanoseconds of the last accepted trigger
	wanted  chan wanted
	turn    chan struct{}
	made    *prometheus.CounterVec
	dropped *prometheus.CounterVec
}

type wanted struct {
	trigger Trigger
	detail  string
	at      time.Time
}

// New returns a recorder, and starts the execution trace if Trace is set. Close stops it.
func New(o Options) (*Recorder, error) {
	if o.Count <= 0 {
		o.Count = 8
	}
	if o.Bytes <= 0 {
		o.Bytes = 32 << 20
	}
	if o.DirBytes <= 0 {
		o.DirBytes = 64 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Recorder{
		o: o, now: time.Now, wanted: make(chan wanted, 1), turn: make(chan struct{}, 1),
		made: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_flight_records_total", Help: "Flight records made, by trigger: request, health or slow_decision.",
		}, []string{"trigger"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "grapevine_flight_records_dropped_total", Help: "Flight records not made or no longer stored, by reason: recent (the trigger made one in the last five minutes), busy, size, old (replaced by a newer record) or error.",
		}, []string{"reason"}),
	}
	for _, name := range triggerNames {
		r.made.WithLabelValues(name)
	}
	for _, reason := range []string{droppedRecent, droppedBusy, droppedSize, droppedOld, droppedError} {
		r.dropped.WithLabelValues(reason)
	}
	if o.Registry != nil {
		if err := errors.Join(o.Registry.Register(r.made), o.Registry.Register(r.dropped)); err != nil {
			return nil, err
		}
	}
	for _, p := range o.Parts {
		r.parts = append(r.parts, &part{Part: p})
	}
	r.store = &store{count: o.Count, bytes: o.Bytes}
	if o.Dir != "" {
		if s, err := openStore(o.Dir, o.Count, o.DirBytes); err != nil {
			o.Log.Warn("flight records are kept in memory: their folder cannot be used", "error", err)
		} else {
			r.store = s
		}
	}
	length := max(o.Trace, traceAfter)
	size := max(min(int64(length.Seconds()*traceRate), o.Bytes/4, maxPart), minTrace)
	r.config = trace.FlightRecorderConfig{MinAge: length, MaxBytes: uint64(size)}
	if o.Trace > 0 {
		r.trace = trace.NewFlightRecorder(r.config)
		if err := r.trace.Start(); err != nil { // another recorder of this process has the trace
			o.Log.Warn("the execution trace does not run: flight records have the second after their trigger", "error", err)
			r.trace = nil
		}
	}
	return r, nil
}

// Trigger requests a record and returns at once.
func (r *Recorder) Trigger(t Trigger, detail string) {
	if r == nil {
		return
	}
	now := r.now()
	last := r.last[t].Load()
	if last != 0 && now.UnixNano()-last < int64(Interval) || !r.last[t].CompareAndSwap(last, now.UnixNano()) {
		r.dropped.WithLabelValues(droppedRecent).Inc()
		return
	}
	select {
	case r.wanted <- wanted{t, detail, now}:
	default:
		r.last[t].Store(last)
		r.dropped.WithLabelValues(droppedBusy).Inc()
	}
}

// Run makes the records that triggers request, until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-r.wanted:
			rec, err := r.record(ctx, w)
			if err != nil {
				r.o.Log.Warn("flight record was not made", "trigger", w.trigger.String(), "error", err)
				continue
			}
			r.o.Log.Info("flight record stored", "record", rec.Name, "trigger", w.trigger.String(), "detail", w.detail, "bytes", rec.Bytes)
		}
	}
}

// Close stops the execution trace.
func (r *Recorder) Close() {
	if r != nil && r.trace != nil {
		r.trace.Stop()
	}
}

// Stored lists the stored records, the newest first.
func (r *Recorder) Stored() []Record { return r.store.records() }

// Record makes a record now, stores it and returns it with its content. It returns ErrBusy while
// another record is being made.
func (r *Recorder) Record(ctx context.Context) (Record, []byte, error) {
	rec, err := r.record(ctx, wanted{Request, "requested by an operator", r.now()})
	return rec, rec.content, err
}

// record makes and stores a record.
func (r *Recorder) record(ctx context.Context, w wanted) (Record, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	default:
		r.dropped.WithLabelValues(droppedBusy).Inc()
		return Record{}, ErrBusy
	}
	rec := Record{Name: r.name(w), At: w.at, Trigger: w.trigger.String(), Detail: w.detail}
	var err error
	if rec.content, err = r.archive(ctx, &rec); err != nil {
		r.dropped.WithLabelValues(droppedError).Inc()
		return Record{}, err
	}
	rec.Bytes = int64(len(rec.content))
	r.made.WithLabelValues(rec.Trigger).Inc()
	removed, err := r.store.add(rec)
	r.dropped.WithLabelValues(droppedOld).Add(float64(removed))
	switch {
	case errors.Is(err, errSize):
		r.dropped.WithLabelValues(droppedSize).Inc()
	case err != nil:
		r.dropped.WithLabelValues(droppedError).Inc()
	}
	if w.trigger == Request {
		err = nil // the caller gets the record anyway
	}
	return rec, err
}

// name returns the name of a record. It sorts by time.
func (r *Recorder) name(w wanted) string {
	return fmt.Sprintf("%s%s-%s-%s-%s%s", prefix, w.at.UTC().Format("20060102T150405"), safeName(r.o.Name), w.trigger, rand.Text()[:4], suffix)
}

// safeName returns a name for use in a file name.
func safeName(name string) string {
	return string(bytes.Map(func(c rune) rune {
		if c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '_'
	}, []byte(name[:min(len(name), 64)])))
}
