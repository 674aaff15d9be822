package replay

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fastjson"
)

// ErrTrace is wrapped by every complaint about a trace's content.
var ErrTrace = errors.New("replay: bad trace")

// Block names a KV block and all before it, densely from 0 within one Trace.
type Block uint32

// Request is one line of a trace.
type Request struct {
	At      time.Duration // arrival, from the start
	Input   int           // prompt tokens
	Output  int           // generated tokens
	Session int32         // dense from 0
	// Blocks names the prompt's blocks, the last of them possibly partial.
	Blocks []Block
	// Answer names the blocks behind the full ones of the prompt, as far as a
	// later turn of the session shows them: its prompt holds this answer.
	Answer []Block
}

// full returns the number of full blocks of the prompt.
func (r *Request) full(blockSize int) int { return min(r.Input/blockSize, len(r.Blocks)) }

// Trace is a list of requests in order of arrival. It is read-only once made.
type Trace struct {
	Name      string
	BlockSize int // tokens
	Requests  []Request
	Blocks    int // distinct blocks
	Sessions  int
	Length    time.Duration // the span that arrivals cover
}

// Rate returns the mean arrivals per second.
func (t *Trace) Rate() float64 {
	if t.Length <= 0 {
		return 0
	}
	return float64(len(t.Requests)) / t.Length.Seconds()
}

// ReadOptions say how a trace is to be read.
type ReadOptions struct {
	Name      string // default: the file's name
	BlockSize int    // tokens for each hash id; default 512
	// Spread is the tick to which arrivals were rounded down; Scale spreads
	// them over it. 0 means: found out, if it is a second or more; negative:
	// none.
	Spread time.Duration
}

// DefaultBlockSize is the block size of the public traces, in tokens.
const DefaultBlockSize = 512

const maxLine = 64 << 20

// OpenTrace reads a trace file.
func OpenTrace(path string, o ReadOptions) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if o.Name == "" {
		o.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	t, err := ReadTrace(f, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// ReadTrace reads a trace in the public block-hash format: one JSON object in
// each line, with timestamp (milliseconds), input_length, output_length,
// hash_ids (one for each block; an id stands for the whole prefix up to its
// block) and, optionally, session_id. Other fields are ignored. Errors wrap
// ErrTrace and name the line.
func ReadTrace(r io.Reader, o ReadOptions) (*Trace, error) {
	if o.BlockSize <= 0 {
		o.BlockSize = DefaultBlockSize
	}
	in := reader{blockSize: o.BlockSize, blocks: map[int64]Block{}, sessions: map[string]int32{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<20), maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := in.add(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrTrace, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTrace, err)
	}
	if len(in.requests) == 0 {
		return nil, fmt.Errorf("%w: no request", ErrTrace)
	}
	t := &Trace{Name: o.Name, BlockSize: o.BlockSize, Requests: in.requests, Blocks: len(in.blocks), Sessions: len(in.sessions)}
	t.finish(o.Spread, in.unnamed)
	return t, nil
}

// finish puts a trace in order and derives what its lines do not say.
func (t *Trace) finish(spread time.Duration, derive bool) {
	slices.SortStableFunc(t.Requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	if spread == 0 {
		spread = tick(t.Requests)
	}
	t.spreadOver(spread)
	if derive {
		t.deriveSessions()
	}
	t.nameAnswers()
}

type reader struct {
	parser    fastjson.Parser
	blockSize int
	requests  []Request
	blocks    map[int64]Block
	sessions  map[string]int32
	unnamed   bool // at least one line has no session
}

func (in *reader) add(line []byte) error {
	v, err := in.parser.ParseBytes(line)
	if err != nil {
		return err
	}
	r := Request{
		At:    time.Duration(v.GetFloat64("timestamp") * float64(time.Millisecond)),
		Input: v.GetInt("input_length"), Output: v.GetInt("output_length"),
	}
	ids := v.GetArray("hash_ids")
	switch {
	case r.At < 0:
		return fmt.Errorf("timestamp %v", r.At)
	case r.Input < 1 || r.Output < 0:
		return fmt.Errorf("input_length %d, output_length %d", r.Input, r.Output)
	case len(ids) < r.Input/in.blockSize:
		return fmt.Errorf("%d hash_ids for %d tokens in blocks of %d", len(ids), r.Input, in.blockSize)
	}
	r.Output = max(r.Output, 1)
	r.Blocks = make([]Block, min(len(ids), (r.Input+in.blockSize-1)/in.blockSize))
	for i := range r.Blocks {
		id, err := ids[i].Int64()
		if err != nil {
			return fmt.Errorf("hash_ids: %w", err)
		}
		r.Blocks[i] = number(in.blocks, id)
	}
	r.Session = in.session(v)
	in.requests = append(in.requests, r)
	return nil
}

func (in *reader) session(v *fastjson.Value) int32 {
	s := v.Get("session_id")
	if s == nil || s.Type() == fastjson.TypeNull {
		in.unnamed = true
		return -1
	}
	name := s.String()
	n, ok := in.sessions[name]
	if !ok {
		n = int32(len(in.sessions))
		in.sessions[name] = n
	}
	return n
}

// number returns the dense number of an id, a new one when it has none.
func number(m map[int64]Block, id int64) Block {
	b, ok := m[id]
	if !ok {
		b = Block(len(m))
		m[id] = b
	}
	return b
}
