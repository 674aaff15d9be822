package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/valyala/fastjson"
)

// ReadOptions control reading.
type ReadOptions struct {
	Name      string // default: the file's name
	BlockSize int    // tokens for each hash id; default 512
	// Spread is the resolution to which arrivals were rounded down; Scale spreads them over it. 0:
	// derived from the data if it is a second or more; negative: none.
	Spread time.Duration
	// Begin and Length select the rows of a table by time since its first row. Length 0 means all.
	Begin, Length time.Duration
	Shared        Shared // for traces that have only lengths
}

// DefaultBlockSize is the block size of the public traces, in tokens.
const DefaultBlockSize = 512

const (
	maxLine   = 64 << 20
	maxTokens = 1 << 30
	maxSpan   = 31 * 24 * time.Hour
)

// NameOf returns the name that a trace file gives its trace.
func NameOf(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), ".gz")
	return strings.TrimSuffix(strings.TrimSuffix(name, filepath.Ext(name)), "_trace")
}

// Open reads a trace file, compressed by gzip or not.
func Open(path string, o ReadOptions) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if o.Name == "" {
		o.Name = NameOf(path)
	}
	r, err := unzipped(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t, err := Read(r, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// unzipped decompresses r if it starts as gzip does.
func unzipped(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if magic, err := b.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return b, nil
	}
	return gzip.NewReader(b)
}

// Read reads a trace in one of three formats, which it detects from the first bytes:
//
//   - The public block-hash format: one JSON object in each line, with timestamp
//     (milliseconds), input_length, output_length (0: not recorded), hash_ids (one for each
//     block; an id stands for the whole prefix up to its block) and, optionally,
//     session_id, tenant and priority. Lines need no order. Read also uses the fields status
//     and cached_tokens of recordings, and ignores other fields.
//   - A CSV table of times and lengths with a header: Azure's, BurstGPT's or Vidur's.
//     Shared prefixes are modelled (Trace.Model).
//   - A JSON array of conversations, as in ShareGPT. Times are modelled (Trace.Model).
//
// Errors wrap ErrTrace and name the line, row or conversation.
func Read(r io.Reader, o ReadOptions) (*Trace, error) {
	if o.BlockSize <= 0 {
		o.BlockSize = DefaultBlockSize
	}
	if err := o.Shared.check(); err != nil {
		return nil, err
	}
	in := reader{blockSize: o.BlockSize, blocks: map[uint64]Block{}, sessions: map[string]int32{}, tenants: map[string]int32{"": 0}, names: []string{""}}
	b := bufio.NewReader(r)
	switch begin := firstByte(b); {
	case begin != '{' && begin != '[' && begin != 0:
		return readTable(b, in, o)
	case o.Begin > 0 || o.Shared != Shared{}:
		return nil, fmt.Errorf("%w: only a table of times and lengths can be begun later, or given system prompts", ErrTrace)
	case begin == '[':
		return readConversations(b, in, o)
	}
	if err := in.lines(b); err != nil {
		return nil, err
	}
	return in.trace(&o, in.unnamed)
}

// firstByte returns the first byte that is neither white space nor part of a byte order mark, or 0
// if there is none among the first 512.
func firstByte(b *bufio.Reader) byte {
	head, _ := b.Peek(512)
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	if len(head) == 0 {
		return 0
	}
	return head[0]
}

func readTable(r io.Reader, in reader, o ReadOptions) (*Trace, error) {
	t := table{reader: in, o: &o, contexts: newContexts(&o)}
	if err := t.read(r); err != nil {
		return nil, err
	}
	if o.Spread == 0 {
		o.Spread = t.tick
	}
	out, err := t.trace(&o, false)
	if err != nil {
		return nil, err
	}
	out.Blocks, out.Model = t.contexts.blocks, o.Shared.String()
	if t.column.session >= 0 {
		out.Model += ", and each prompt of one goes on from the last as far as its length allows"
	}
	return out, nil
}

func readConversations(r io.Reader, in reader, o ReadOptions) (*Trace, error) {
	t := conversations{reader: in}
	if err := t.read(r); err != nil {
		return nil, err
	}
	out, err := t.trace(&o, false)
	if err != nil {
		return nil, err
	}
	out.Model = fmt.Sprintf("a token is %d bytes; conversations begin at random over %v, and a question comes %d s after the answer before it, in the mean", bytesPerToken, conversationSpan, conversationPause)
	return out, nil
}

// lines reads the block-hash format.
func (in *reader) lines(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<20), maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		if err := in.add(lines.Bytes()); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrTrace, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: line %d: %w", ErrTrace, n, err)
	}
	return nil
}

// trace returns the trace. derive reports whether sessions have to be derived.
func (in *reader) trace(o *ReadOptions, derive bool) (*Trace, error) {
	if len(in.requests) == 0 {
		return nil, fmt.Errorf("%w: no request", ErrTrace)
	}
	t := &Trace{
		Name: o.Name, BlockSize: o.BlockSize, Requests: in.requests, Blocks: len(in.blocks), Sessions: int(in.numbered), Tenants: in.names, Recorded: in.recorded,
	}
	t.finish(o.Spread, derive)
	if t.Length > maxSpan {
		return nil, fmt.Errorf("%w: it spans %v, %v at most: times are milliseconds, in tables seconds, of which a part can be taken (--begin, --length)", ErrTrace, t.Length.Round(time.Hour), maxSpan)
	}
	return t, nil
}

type reader struct {
	parser    fastjson.Parser
	blockSize int
	requests  []Request
	blocks    map[uint64]Block
	sessions  map[string]int32
	tenants   map[string]int32
	names     []string // of tenants
	unnamed   bool     // at least one line has no session
	numbered  int32    // sessions so far
	recorded  Recorded
}

func (in *reader) add(line []byte) error {
	v, err := in.parser.ParseBytes(line)
	if err != nil {
		return err
	}
	at, err := number(v, "timestamp", float64(maxTime/time.Millisecond))
	if err != nil {
		return err
	}
	input, err := number(v, "input_length", maxTokens)
	if err != nil {
		return err
	}
	output, err := number(v, "output_length", maxTokens)
	if err != nil {
		return err
	}
	if input < 1 {
		return fmt.Errorf("input_length %v: want 1 or more", input)
	}
	if wrong(v.GetInt("status")) {
		in.recorded.LeftOut++
		return nil
	}
	r := Request{At: time.Duration(at * float64(time.Millisecond)), Input: int(input), Output: int(output)}
	if r.Blocks, err = in.chain(v, r.Input); err != nil {
		return err
	}
	if r.Priority, err = priority(v); err != nil {
		return err
	}
	r.Session, r.Tenant = in.session(v), in.tenant(v)
	in.count(v, &r)
	in.requests = append(in.requests, r)
	return nil
}

// maxTime is the latest time that a line may have.
const maxTime = 200 * 365 * 24 * time.Hour

// number returns a required number from 0 to most.
func number(v *fastjson.Value, field string, most float64) (float64, error) {
	f := v.Get(field)
	if f == nil {
		return 0, fmt.Errorf("%s is missing", field)
	}
	n, err := f.Float64()
	if err != nil || !(n >= 0 && n <= most) {
		return 0, fmt.Errorf("%s %s: want a number from 0 to %.3g", field, f, most)
	}
	return n, nil
}

// wrong reports whether engines refused the request as invalid, so it costs nothing under any
// policy.
func wrong(status int) bool { return status >= 400 && status < 500 && status != 408 && status != 429 }

// chain returns the blocks of a prompt.
func (in *reader) chain(v *fastjson.Value, input int) ([]Block, error) {
	f := v.Get("hash_ids")
	if f == nil {
		return nil, fmt.Errorf("hash_ids is missing")
	}
	ids, err := f.Array()
	if err != nil {
		return nil, fmt.Errorf("hash_ids: %w", err)
	}
	if len(ids) < input/in.blockSize || len(ids) > (input+in.blockSize-1)/in.blockSize {
		return nil, fmt.Errorf("%d hash_ids for %d tokens in blocks of %d: is the block size another?", len(ids), input, in.blockSize)
	}
	out := make([]Block, len(ids))
	for i := range out {
		id, err := ids[i].Uint64()
		if err != nil {
			return nil, fmt.Errorf("hash_ids: %w", err)
		}
		out[i] = dense(in.blocks, id)
	}
	return out, nil
}

func (in *reader) session(v *fastjson.Value) int32 {
	s := v.Get("session_id")
	if s == nil || s.Type() == fastjson.TypeNull {
		in.unnamed = true
		return -1
	}
	return in.number(s.String())
}

// number returns the number of the named session.
func (in *reader) number(name string) int32 {
	n, ok := in.sessions[name]
	if !ok {
		n = in.begin()
		in.sessions[name] = n
	}
	return n
}

// begin returns the number of a new session.
func (in *reader) begin() int32 {
	in.numbered++
	return in.numbered - 1
}

// tenant returns the number of the line's tenant, or 0.
func (in *reader) tenant(v *fastjson.Value) int32 {
	f := v.Get("tenant")
	if f == nil || f.Type() == fastjson.TypeNull {
		return 0
	}
	name := string(f.GetStringBytes())
	if f.Type() != fastjson.TypeString {
		name = f.String()
	}
	n, ok := in.tenants[name]
	if !ok {
		n = int32(len(in.names))
		in.tenants[name], in.names = n, append(in.names, name)
	}
	return n
}

// priority returns the line's priority, or 0.
func priority(v *fastjson.Value) (int32, error) {
	f := v.Get("priority")
	if f == nil || f.Type() == fastjson.TypeNull {
		return 0, nil
	}
	n, err := f.Int()
	if err != nil || n < math.MinInt32 || n > math.MaxInt32 {
		return 0, fmt.Errorf("priority %s: want an integer of 32 bits", f)
	}
	return int32(n), nil
}

func (in *reader) count(v *fastjson.Value, r *Request) {
	if r.Output == 0 {
		in.recorded.Unseen++
	}
	if c := v.Get("cached_tokens"); c != nil && c.Type() == fastjson.TypeNumber {
		in.recorded.Counted++
		in.recorded.Cached += min(max(c.GetInt(), 0), r.Input)
		in.recorded.Input += r.Input
	}
}

// dense returns the dense number of an id and assigns new ones.
func dense(m map[uint64]Block, id uint64) Block {
	b, ok := m[id]
	if !ok {
		b = Block(len(m))
		m[id] = b
	}
	return b
}
