package filter

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/grapevine-epp/grapevine/internal/varint"
)

// A part holds the current rows that changed since a version. All parts since version 0 form a
// snapshot. The requesting side goes through the rows in order. At the end it has everything up to
// the lowest version of a part in the round. Answers are independent, so lost, late, duplicate and
// reordered ones only delay the next request.

// MaxPart limits the rows of one part, in bytes.
const MaxPart = 128 << 10

// MinPart is the smallest useful request.
const MinPart = 1 << 10

// Position is an importer's progress in a filter.
type Position struct {
	Epoch uint64
	Since uint32 // all changes up to this version are applied
	Row   uint32 // next row to request for the changes since then
}

// ErrPart means that a part is malformed or does not fit its filter.
var ErrPart = errors.New("filter: malformed part of a filter")

// AppendPart appends about most bytes of the rows that changed after at.Since, from at.Row on. If
// at is in another epoch, it starts from the beginning of this one.
func (s *Source) AppendPart(b []byte, at Position, most int) []byte {
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	s.follow(s.hot)
	s.settle()
	if at.Epoch != s.epoch || at.Since > s.version || int(at.Row) >= len(s.stamps) {
		at = Position{Epoch: s.epoch}
	}
	end := len(b) + min(most, MaxPart)
	h := s.head()
	b = h.Append(b)
	b = binary.AppendUvarint(b, uint64(at.Since))
	b = binary.AppendUvarint(b, uint64(at.Row))
	from := len(b)
	b = append(b, make([]byte, 4+8)...) // end of the rows; digest
	row := int(at.Row)
	for row < len(s.stamps) && len(b) < end {
		gap := row
		for gap < len(s.stamps) && s.stamps[gap] <= at.Since {
			gap++
		}
		run := gap
		for run < len(s.stamps) && s.stamps[run] > at.Since && (run-gap)*rowBytes < end-len(b) {
			run++
		}
		if run == gap {
			row = gap
			break
		}
		b = binary.AppendUvarint(b, uint64(gap-row))
		b = binary.AppendUvarint(b, uint64(run-gap))
		for _, w := range s.filter.words[gap*wordsPerRow : run*wordsPerRow] {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		row = run
	}
	binary.LittleEndian.PutUint32(b[from:], uint32(row))
	binary.LittleEndian.PutUint64(b[from+4:], s.digest)
	return b
}

// Append appends the encoded head.
func (h Head) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, h.Epoch)
	for _, v := range [...]uint64{h.Rotation, uint64(h.Buckets), uint64(h.Version), uint64(h.Blocks), uint64(h.Omitted)} {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// ReadHead decodes a head. An error is left in r.
func ReadHead(r *varint.Reader) Head {
	h := Head{Epoch: r.Fixed64(), Rotation: r.Uint(), Buckets: r.Uint32(), Version: r.Uint32(), Blocks: r.Uint32(), Omitted: r.Uint32()}
	if h.Buckets > MaxBuckets || h.Epoch != 0 && h.Buckets < minBuckets {
		r.Fail(varint.ErrValue)
	}
	return h
}

// part is the header of a part.
type part struct {
	Head
	since    uint32
	row, end uint32
	digest   uint64
	rows     []byte
}

func decodePart(b []byte) (p part, err error) {
	r := varint.Reader{B: b}
	p.Head = ReadHead(&r)
	p.since, p.row = r.Uint32(), r.Uint32()
	p.end, p.digest = r.Fixed32(), r.Fixed64()
	p.rows = r.B
	if r.Err != nil || p.Epoch == 0 || p.row > p.end || p.end > p.Buckets*rowsPerBucket {
		return part{}, ErrPart
	}
	return p, nil
}

// HeadOf returns the head in a part, which identifies its filter.
func HeadOf(b []byte) (Head, error) {
	p, err := decodePart(b)
	return p.Head, err
}

// Sink is the importing side of one filter. It is not safe for concurrent use, but its filters are.
type Sink struct {
	key    func(rotation uint64) pairKey
	most   int // size limit of a filter in bytes
	filter *Filter
	head   Head     // of filter
	at     Position // of the next part
	upTo   uint32   // lowest version of this round's parts
	whole  bool     // a round has ended: the filter is complete as of at.Since
	used   *Filter  // read by lookups: filter, or the previous one while filter is loading
	digest uint64
	healed uint64 // rounds that ended with a different digest
}

// NewSink returns the sink of a filter from exporter to importer, of at most most bytes.
func NewSink(secret *Secret, w Way, most int) *Sink {
	return &Sink{most: most, key: func(r uint64) pairKey { return secret.pair(w, r) }}
}

// Filter returns the filter for lookups, or nil if no part was received.
func (s *Sink) Filter() *Filter { return s.used }

// Needs returns the memory needed for a filter with this head: the new filter, and the current one
// until the new one is complete. A nil sink has no current one.
func (s *Sink) Needs(h Head) int {
	if s == nil || s.used == s.filter && s.at.Epoch == h.Epoch {
		return h.Bytes()
	}
	return h.Bytes() + s.used.Bytes()
}

// Position returns the position to request next.
func (s *Sink) Position() Position { return s.at }

// Progress returns how much of the exporter's filter was received, in percent, and whether the
// previous filter is used until it is complete.
func (s *Sink) Progress(of Head) (percent int, replaces bool) {
	rows := max(uint64(of.Buckets), 1) * rowsPerBucket
	return int(100 * uint64(s.at.Row) / rows), s.used != nil && s.used != s.filter
}

// Complete reports whether the filter in use is complete, and as of which epoch and version.
func (s *Sink) Complete() (head Head, ok bool) {
	h := s.head
	h.Version = s.at.Since
	return h, s.whole
}

// Behind reports whether there is more to request, given the exporter's head.
func (s *Sink) Behind(h Head) bool {
	return h.Epoch != 0 && (h.Epoch != s.at.Epoch || h.Version > s.at.Since || s.at.Row != 0 || !s.whole)
}

// Apply applies a part and reports whether the position moved. A part that is not the next is
// ignored: it is a duplicate or late.
func (s *Sink) Apply(b []byte) (moved bool, err error) {
	p, err := decodePart(b)
	if err != nil {
		return false, err
	}
	if p.Epoch != s.at.Epoch {
		if p.since != 0 || p.row != 0 {
			return false, nil
		}
		if err := s.begin(p.Head); err != nil {
			return false, err
		}
	}
	if p.since != s.at.Since || p.row != s.at.Row || p.Buckets != s.head.Buckets || p.Version < s.at.Since {
		return false, nil
	}
	if err := checkRows(&p); err != nil {
		return false, err
	}
	s.store(&p)
	if s.at.Row == 0 || p.Version < s.upTo {
		s.upTo = p.Version
	}
	single := p.row == 0
	s.at.Row = p.end
	if p.end < p.Buckets*rowsPerBucket {
		return true, nil
	}
	s.at.Row, s.at.Since, s.whole = 0, s.upTo, true
	s.used = s.filter
	if single && s.digest != p.digest { // a sender or receiver error: start over
		s.healed++
		s.at.Since, s.whole = 0, false
		clearWords(s.filter.words)
		s.digest = 0
	}
	return true, nil
}

// errLarge means that a filter exceeds this side's limit.
var errLarge = errors.New("filter: filter exceeds the size limit")

// begin allocates a filter for another epoch. The previous one is used until the new one is
// complete.
func (s *Sink) begin(h Head) error {
	if int(h.Buckets)*wordsPerBucket*8 > s.most {
		return errLarge
	}
	s.filter, s.head = newFilter(s.key(h.Rotation), int(h.Buckets)), h
	s.at, s.upTo, s.whole, s.digest = Position{Epoch: h.Epoch}, 0, false, 0
	if s.used == nil {
		s.used = s.filter
	}
	return nil
}

// checkRows checks that a part's rows are within its bounds.
func checkRows(p *part) error {
	r, row := varint.Reader{B: p.rows}, uint64(p.row)
	for len(r.B) > 0 && r.Err == nil {
		gap, n := r.Uint(), r.Uint()
		if n == 0 || gap > uint64(p.end) || n > uint64(p.end) || row+gap+n > uint64(p.end) {
			return ErrPart
		}
		row += gap
		r.Take(n * rowBytes)
		row += n
	}
	if r.Err != nil {
		return ErrPart
	}
	return nil
}

// store writes validated rows.
func (s *Sink) store(p *part) {
	r, row := varint.Reader{B: p.rows}, uint64(p.row)
	for len(r.B) > 0 {
		row += r.Uint()
		for n := r.Uint(); n > 0; n-- {
			s.digest ^= s.filter.rowDigest(row)
			atomic.StoreUint64(&s.filter.words[row*wordsPerRow], r.Fixed64())
			atomic.StoreUint64(&s.filter.words[row*wordsPerRow+1], r.Fixed64())
			s.digest ^= s.filter.rowDigest(row)
			row++
		}
	}
}

func clearWords(words []uint64) {
	for i := range words {
		atomic.StoreUint64(&words[i], 0)
	}
}
