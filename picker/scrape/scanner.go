package scrape

import (
	"bytes"
	"errors"
	"io"
	"math"
	"time"

	"github.com/grapevine-epp/grapevine/picker/endpoint"
)

// bufferSize is the part of a page held in memory, and the maximum line length.
const bufferSize = 32 << 10

// maxIdleReads bounds consecutive reads without data or error.
const maxIdleReads = 100

// ErrNoGauges means that a page has no gauges of a known engine, or of the expected one.
var ErrNoGauges = errors.New("scrape: the page has no gauges of a known engine")

// Page is the content of one metrics page.
type Page struct {
	// The gauges without At and Progress. Ranks counts the data-parallel ranks with a waiting gauge,
	// at least 1. Started is zero if the page shows no start or several.
	endpoint.Gauges
	// Prompt tokens since the start: looked up in the prefix cache, and found there or through a
	// connector. Both are 0 if the page lacks them; see Counts.
	QueryTokens, HitTokens float64
	Counts                 bool // the page has a hit counter
	Uncached               bool // the page shows that prefix caching is disabled
	// Generated tokens since the start; 0 if the page lacks the counter.
	Generated float64
	// Ended requests since the start, with any result. EndsCount: the page has the counter.
	Ended     float64
	EndsCount bool
	// Latency holds the sums and counts of latency histograms.
	Latency endpoint.Latency

	Bytes   int // read
	Skipped int // overlong lines and invalid values
}

// Sample returns the page as a sample taken at at.
func (p *Page) Sample(at time.Time) endpoint.Gauges {
	g := p.Gauges
	g.At, g.Progress = at, p.progress()
	return g
}

// progress combines the counters, for engines that have every counter.
func (p *Page) progress() endpoint.Progress {
	if !p.Counts || !p.EndsCount || p.Generated == 0 {
		return endpoint.Progress{}
	}
	const most = 1 << 53 // integers up to this are exact
	return endpoint.Progress{
		Known: true, Ended: uint64(min(p.Ended, most)),
		Computed: uint64(min(max(p.QueryTokens-p.HitTokens, 0)+p.Generated, most)),
	}
}

func whole(v float64) int { return int(min(v+0.5, math.MaxInt32)) }

// Scanner reads pages. It holds one buffer and allocates nothing per page, except for adapters.
type Scanner struct {
	buf    []byte
	labels labelSet
	page   pageSums
	own    *ownNames   // configured names; nil: built-in ones
	sums   []customSum // of own.custom
}

// tally accumulates the values of a page's lines.
type pageSums struct {
	engine endpoint.EngineType
	sum    [numberOfWhats]float64
	count  [numberOfWhats]int
	ranks  rankSet // of the waiting gauge
	config struct {
		size, blocks     int
		cached, uncached bool // some series show it
	}
	lora struct {
		at      float64
		max     int
		running []byte // comma-separated lists
		waiting []byte
	}
	skipped int
}

// NewScanner returns a scanner.
func NewScanner() *Scanner { return &Scanner{buf: make([]byte, bufferSize)} }

// Scan reads a page to its end. engine selects the names; EngineUnknown uses the names of the first
// engine that the page names. It returns an error of r unchanged, with an empty page.
func (s *Scanner) Scan(r io.Reader, engine endpoint.EngineType) (Page, error) {
	return s.scan(r, nil, engine)
}

// scan is Scan with configured names, unless own is nil. engine is then only the reported type.
func (s *Scanner) scan(r io.Reader, own *ownNames, engine endpoint.EngineType) (Page, error) {
	s.own = own
	s.startCustom()
	running, waiting := s.page.lora.running[:0], s.page.lora.waiting[:0]
	s.page = pageSums{engine: engine}
	s.page.lora.running, s.page.lora.waiting = running, waiting
	var page Page
	held, skipping, idle := 0, false, 0
	for {
		n, err := r.Read(s.buf[held:])
		page.Bytes += n
		if idle++; n > 0 {
			idle = 0
		} else if err == nil && idle > maxIdleReads {
			err = io.ErrNoProgress
		}
		rest := s.lines(s.buf[:held+n], &skipping)
		held = copy(s.buf, rest)
		if held == len(s.buf) || skipping {
			if !skipping {
				s.page.skipped++
			}
			held, skipping = 0, true
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Page{Bytes: page.Bytes}, err
		}
	}
	if held > 0 && !skipping {
		s.line(s.buf[:held])
	}
	err := s.finish(&page)
	return page, err
}

// lines processes all complete lines of b and returns the rest. skipping means that b begins within
// an overlong line.
func (s *Scanner) lines(b []byte, skipping *bool) []byte {
	for {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return b
		}
		if !*skipping && end > 0 {
			s.line(b[:end])
		}
		*skipping = false
		b = b[end+1:]
	}
}

func (s *Scanner) line(line []byte) {
	if line[0] == ' ' || line[0] == '\t' {
		if line = trimLeft(line); len(line) == 0 {
			return
		}
	}
	var m *metric
	var rest []byte
	if s.own != nil {
		s.custom(line)
	}
	if s.own != nil && s.own.series != nil {
		m, rest = s.own.find(line, &s.labels)
	} else {
		m, rest = find(line)
	}
	if m == nil {
		return
	}
	t := &s.page
	if m.engine != endpoint.EngineUnknown && m.engine != t.engine {
		if t.engine != endpoint.EngineUnknown {
			return
		}
		t.engine = m.engine
	}
	labels, value, ok := split(rest)
	v, fine := number(value)
	if !ok || !fine {
		t.skipped++
		return
	}
	s.labels.rest = labels
	switch m.what {
	case whatConfig:
		s.config()
	case whatLoRA:
		s.lora(v)
	case whatWaiting:
		t.add(m.what, v)
		s.rank()
	case whatTritonRequests:
		t.add(s.which(labelRequestType, requestTypes[:]), v)
	case whatTritonBlocks:
		t.add(s.which(labelBlockType, blockTypes[:]), v)
	default:
		t.add(m.what, v)
	}
}

func (t *pageSums) add(w what, v float64) {
	t.sum[w] += v
	t.count[w]++
}

// which translates the label that distinguishes Triton's gauges.
func (s *Scanner) which(label string, kinds []kind) what {
	for {
		name, value, ok := s.labels.next()
		if !ok {
			return whatNothing
		}
		if string(name) != label {
			continue
		}
		for i := range kinds {
			if string(value) == kinds[i].value {
				return kinds[i].what
			}
		}
		return whatNothing
	}
}

// rank records the data-parallel rank of a series.
func (s *Scanner) rank() {
	for {
		name, value, ok := s.labels.next()
		if !ok {
			return
		}
		if string(name) == labelEngine || string(name) == labelRank {
			s.page.ranks.add(value)
		}
	}
}

// config reads the cache's block size and count. The block size is the same for all ranks. vLLM
// reports the total of all ranks on each rank; SGLang reports each rank's own.
func (s *Scanner) config() {
	for {
		name, value, ok := s.labels.next()
		if !ok {
			return
		}
		switch string(name) {
		case labelBlockSize, labelPageSize:
			s.page.config.size = max(s.page.config.size, integer(value))
		case labelBlocks:
			s.page.config.blocks = max(s.page.config.blocks, integer(value))
		case labelPages:
			s.page.config.blocks = min(s.page.config.blocks+integer(value), math.MaxInt32)
		case labelCaching:
			if string(value) == "False" {
				s.page.config.uncached = true
			} else if len(value) > 0 {
				s.page.config.cached = true
			}
		}
	}
}

// lora keeps the newest report; the series' value is its time.
func (s *Scanner) lora(at float64) {
	l := &s.page.lora
	if at < l.at {
		return
	}
	l.at, l.max = at, 0
	l.running, l.waiting = l.running[:0], l.waiting[:0]
	s.page.count[whatLoRA]++
	for {
		name, value, ok := s.labels.next()
		if !ok {
			return
		}
		switch string(name) {
		case labelMaxLoRA:
			l.max = integer(value)
		case labelRunningLoRA:
			l.running = append(l.running[:0], value...)
		case labelWaitingLoRA:
			l.waiting = append(l.waiting[:0], value...)
		}
	}
}

// integer parses a small integer, 0 for other values ("None").
func integer(b []byte) int {
	v, ok := decimal(b)
	if !ok || v != math.Trunc(v) || v > math.MaxInt32 {
		return 0
	}
	return int(v)
}

func (s *Scanner) finish(p *Page) error {
	t := &s.page
	p.Skipped = t.skipped
	if t.count[whatStarted] > 0 {
		p.Started = time.UnixMilli(int64(math.Round(min(t.sum[whatStarted]/float64(t.count[whatStarted]), 1e12) * 1e3)))
	}
	if t.count[whatStarted] > 1 {
		p.Started = time.Time{} // several processes, and the page does not distinguish them
	}
	if t.count[whatWaiting]+t.count[whatRunning]+t.count[whatUse]+t.count[whatUseOld] == 0 {
		return ErrNoGauges
	}
	p.Engine, p.Ranks = t.engine, max(t.ranks.len(), 1)
	p.Waiting, p.Running = whole(t.sum[whatWaiting]), whole(t.sum[whatRunning])
	p.Custom = s.customValues()
	p.KVUse = min(t.mean(whatUse), 1)
	if t.count[whatUse] == 0 {
		p.KVUse = min(t.mean(whatUseOld), 1)
	}
	p.QueryTokens, p.HitTokens, p.Counts = t.sum[whatQueries], t.sum[whatHits], t.count[whatHits] > 0
	p.Uncached = t.config.uncached && !t.config.cached
	p.Generated = t.sum[whatGenerated]
	p.Ended, p.EndsCount = t.sum[whatEnded], t.count[whatEnded] > 0
	p.Latency.First = endpoint.LatencySum{Seconds: t.sum[whatFirstSum], Count: t.sum[whatFirstCount]}
	p.Latency.Gap = endpoint.LatencySum{Seconds: t.sum[whatGapSum], Count: t.sum[whatGapCount]}
	p.BlockSize, p.Blocks = t.config.size, t.config.blocks
	if t.count[whatBlockSize] > 0 {
		p.BlockSize = whole(t.mean(whatBlockSize))
	}
	if t.count[whatBlocks] > 0 {
		p.Blocks = whole(t.sum[whatBlocks])
	}
	if t.count[whatLoRA] > 0 {
		p.LoRA = &endpoint.LoRA{Max: t.lora.max, Running: list(t.lora.running), Waiting: list(t.lora.waiting)}
	}
	return nil
}

func (t *pageSums) mean(w what) float64 {
	if t.count[w] == 0 {
		return 0
	}
	return t.sum[w] / float64(t.count[w])
}

// list splits a comma-separated list of names and drops empty ones.
func list(b []byte) []string {
	var out []string
	for len(b) > 0 {
		word, rest, _ := bytes.Cut(b, []byte(","))
		if word = bytes.TrimSpace(word); len(word) > 0 {
			out = append(out, string(word))
		}
		b = rest
	}
	return out
}
