package recording

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/indexer/approx"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/budget"
	"github.com/grapevine-epp/grapevine/picker/request"
)

// Since is the response header of /debug/record that holds when the
// recording began, in Unix milliseconds.
const Since = "Grapevine-Recording-Since"

const (
	recordRing    = 8192 // ended requests that wait for a slow reader
	maxRecordings = 4
	recordLinger  = 2 * time.Minute // for open requests, after a recording's duration
)

// Line is one ended request of a recording, without prompt text.
type Line struct {
	Timestamp int64  `json:"timestamp"` // of the decision, Unix milliseconds
	Session   string `json:"session_id,omitempty"`
	Tenant    string `json:"tenant,omitempty"` // a keyed hash of the fairness id
	Priority  int    `json:"priority,omitempty"`
	Input     int    `json:"input_length"`
	Output    int    `json:"output_length"` // 0: not seen
	// ChunkIDs are keyed hashes of 53 bits, one for each chunk of ChunkBytes raw bytes of the
	// prompt. Each hash covers its chunk and all earlier ones. The last chunk may be partial.
	// Replicas with equal secrets compute equal hashes.
	ChunkIDs    []uint64 `json:"chunk_ids"`
	ChunkBytes  int      `json:"chunk_bytes"`
	PromptBytes int      `json:"prompt_bytes"`
	Counted     bool     `json:"counted,omitempty"` // Input is the engine's count, not an estimate
	Seq         uint64   `json:"seq,omitempty"`     // number in the recording, from 1; a gap shows dropped lines
	Model       string   `json:"model,omitempty"`
	Endpoint    string   `json:"endpoint"` // that served
	Status      int      `json:"status"`
	TTFT        float64  `json:"ttft_ms,omitempty"` // where a first token was seen
	Took        float64  `json:"took_ms"`
	Cached      *int     `json:"cached_tokens,omitempty"` // where the engine reported it
}

// Recorder passes ended requests to open recordings. Without an open recording it costs a request
// one atomic load. Safe for concurrent use.
type Recorder struct {
	hasher  block.Hasher
	now     func() time.Time
	done    <-chan struct{} // closed when the replica stops
	dropped prometheus.Counter

	mu     sync.Mutex
	active atomic.Pointer[[]*recording]
}

// recording is one reader of /debug/record.
type recording struct {
	ring    chan Line
	bodies  bool // ask for response bodies, where lengths and first tokens show
	seq     atomic.Uint64
	pending atomic.Int64
	over    atomic.Bool // takes no further requests
}

// New returns a recorder; done is closed when the replica stops.
func New(h block.Hasher, done <-chan struct{}, reg prometheus.Registerer) *Recorder {
	r := &Recorder{hasher: h, now: time.Now, done: done, dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "grapevine_record_dropped_total", Help: "Ended requests that recordings lost because their readers were slow.",
	})}
	reg.MustRegister(r.dropped)
	return r
}

// Attach lets the recordings see how the request of d goes.
func (rc *Recorder) Attach(d *request.Decision, r *request.Request) {
	if rc == nil {
		return
	}
	list := rc.active.Load()
	if list == nil || r.InputTokens < 1 {
		return
	}
	for _, rec := range *list {
		if !rec.over.Load() {
			rc.watch(rec, d, r)
		}
	}
}

// watch wraps d for one recording. It copies the data of r that it keeps.
func (rc *Recorder) watch(rec *recording, d *request.Decision, r *request.Request) {
	rec.pending.Add(1)
	d.WantBody = d.WantBody || rec.bodies
	start, streamed := rc.now(), r.Stream
	line := Line{
		Timestamp: start.UnixMilli(), Input: r.InputTokens, Model: budget.PrintableName(r.Target), Endpoint: d.Endpoints[0],
		ChunkIDs: rc.ids(r), ChunkBytes: approx.DefaultChunkBytes, PromptBytes: r.ChunkBytes(), Session: rc.name("session", r.Session),
		Tenant: rc.name("tenant", r.FairnessID), Priority: r.Priority,
	}
	observe, release := d.Observe, d.Release
	tokens := 0
	d.Observe = func(e request.Event) {
		switch e.Kind {
		case request.EventHeaders:
			if e.Served != "" {
				line.Endpoint = e.Served
			}
		case request.EventFirstToken:
			if streamed && line.TTFT == 0 {
				line.TTFT = milliseconds(rc.since(start, e.At))
			}
		case request.EventTokens:
			tokens += e.Tokens
		}
		if observe != nil {
			observe(e)
		}
	}
	d.Release = func(o request.Outcome) {
		line.end(o, tokens)
		line.Took = milliseconds(rc.since(start, o.At))
		rec.put(line, rc.dropped)
		if release != nil {
			release(o)
		}
	}
}

func (rc *Recorder) since(start, at time.Time) time.Duration {
	if at.IsZero() {
		at = rc.now()
	}
	return at.Sub(start)
}

// end adds the outcome of a request to the line.
func (l *Line) end(o request.Outcome, tokens int) {
	l.Status, l.Output = o.Status, tokens
	if o.Served != "" {
		l.Endpoint = o.Served
	}
	if o.Usage.Seen {
		l.Output = o.Usage.OutputTokens
		if o.Usage.PromptTokens > 0 {
			l.Input, l.Counted = o.Usage.PromptTokens, true
		}
	}
	if o.Status >= 400 {
		l.TTFT = 0 // the body is a complaint
	}
	if o.Usage.CachedSeen {
		cached := o.Usage.CachedTokens
		l.Cached = &cached
	}
}

// put enters a line, or counts it as dropped.
func (rec *recording) put(l Line, dropped prometheus.Counter) {
	defer rec.pending.Add(-1)
	l.Seq = rec.seq.Add(1)
	select {
	case rec.ring <- l:
	default:
		dropped.Inc()
	}
}

// ids returns the hashes of the prompt's full chunks and of its remainder.
func (rc *Recorder) ids(r *request.Request) []uint64 {
	out := make([]uint64, 0, len(r.ChunkKeys)+1)
	last := r.Chunks.Root
	for _, last = range r.ChunkKeys {
		out = append(out, short(last))
	}
	if covered := len(out) * approx.DefaultChunkBytes; covered < r.ChunkBytes() {
		out = append(out, short(rc.hasher.Child(last, r.Chunks.Bytes[covered:])))
	}
	return out
}

// short keeps the bits of a key that every JSON reader can hold.
func short(k block.Key) uint64 { return uint64(k) >> 11 }

func (rc *Recorder) name(kind, name string) string {
	if name == "" {
		return ""
	}
	root := rc.hasher.Root(block.Scope{Space: block.SpaceChunks, Salt: kind})
	return strconv.FormatUint(short(rc.hasher.Child(root, []byte(name))), 16)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// open adds a recording; false when there are too many.
func (rc *Recorder) open(rec *recording) bool {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	var list []*recording
	if p := rc.active.Load(); p != nil {
		list = slices.Clone(*p)
	}
	if len(list) >= maxRecordings {
		return false
	}
	list = append(list, rec)
	rc.active.Store(&list)
	return true
}

func (rc *Recorder) close(rec *recording) {
	rec.over.Store(true)
	rc.mu.Lock()
	defer rc.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*rc.active.Load()), func(r *recording) bool { return r == rec })
	if len(list) == 0 {
		rc.active.Store(nil)
		return
	}
	rc.active.Store(&list)
}

// recordQuery holds the parsed query of /debug/record.
type recordQuery struct {
	duration time.Duration // 0: until the reader goes
	bodies   bool
}

func parseRecordQuery(q url.Values) (o recordQuery, err error) {
	if v := q.Get("duration"); v != "" {
		if o.duration, err = time.ParseDuration(v); err != nil || o.duration <= 0 {
			return o, fmt.Errorf("duration=%q: want a duration such as 10m", v)
		}
	}
	if v := q.Get("bodies"); v != "" {
		if o.bodies, err = strconv.ParseBool(v); err != nil {
			return o, fmt.Errorf("bodies=%q: want true or false", v)
		}
	}
	return o, nil
}

// ServeHTTP answers GET /debug/record with one Line for each request that begins after the call,
// when that request ends. It returns when the duration is over and open requests have ended, when
// the reader disconnects, or when the replica stops.
func (rc *Recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := parseRecordQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rec := &recording{ring: make(chan Line, recordRing), bodies: q.bodies}
	if !rc.open(rec) {
		http.Error(w, fmt.Sprintf("%d recordings run already", maxRecordings), http.StatusTooManyRequests)
		return
	}
	defer rc.close(rec)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set(Since, strconv.FormatInt(rc.now().UnixMilli(), 10))
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return
	}
	rc.stream(rec, q.duration, r.Context().Done(), func(l Line) bool {
		return json.NewEncoder(w).Encode(l) == nil && (len(rec.ring) > 0 || flush() == nil)
	})
}

// stream passes the lines of a recording to write until it ends.
func (rc *Recorder) stream(rec *recording, d time.Duration, gone <-chan struct{}, write func(Line) bool) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case l := <-rec.ring:
			if !write(l) {
				return
			}
		case <-over:
			if rec.over.Swap(true) {
				return
			}
			linger := time.NewTimer(recordLinger)
			defer linger.Stop()
			over = linger.C
		case <-look.C:
			if rec.over.Load() && rec.pending.Load() == 0 && len(rec.ring) == 0 {
				return
			}
		case <-gone:
			return
		case <-rc.done:
			return
		}
	}
}
