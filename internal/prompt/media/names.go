package media

import (
	"context"
	"encoding/hex"
	"slices"
	"sync"
	"sync/atomic"
)

// Item is an image, a sound or a video as a request has it.
type Item struct {
	Kind string // image, audio, video
	UUID string // name sent by the client, "" for none
	Data string // the file in base64, "" when it is not in the request
}

// Names names the media of one model's requests.
type Names struct {
	models []string // possible model names of engines
	way    atomic.Int32
	asked  atomic.Uint32

	mu            sync.Mutex
	announced     map[[digestSize]byte]struct{}
	ring          [keptNames][digestSize]byte
	next          int
	announcements atomic.Uint64
}

const (
	// keptNames is how many of the names that engines announced are remembered.
	keptNames = 1024
	// again is the number of items for which the known hashing variant is assumed before all
	// variants are tried again.
	again = 8
	// unknown is the way that engines hash before one of their names was recognised.
	unknown = -1
)

// New returns the names for a model whose engines may use any of models as its name: a folder or a
// repository. The first is assumed until an engine announces a name.
func New(models ...string) *Names {
	n := &Names{announced: map[[digestSize]byte]struct{}{}}
	for _, m := range models {
		if m != "" && !slices.Contains(n.models, m) {
			n.models = append(n.models, m)
		}
	}
	n.way.Store(unknown)
	return n
}

// Add records a name that an engine announced. It does not retain the slice.
func (n *Names) Add(name []byte) {
	var d [digestSize]byte
	if len(name) != hex.EncodedLen(digestSize) {
		return
	}
	if _, err := hex.Decode(d[:], name); err != nil {
		return
	}
	n.announcements.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.announced[d]; ok {
		return
	}
	if len(n.announced) == keptNames {
		delete(n.announced, n.ring[n.next])
	}
	n.announced[d], n.ring[n.next] = struct{}{}, d
	n.next = (n.next + 1) % keptNames
}

// Name appends the name that engines give to an item. It returns false if the name is unknown, and
// an error if ctx has ended.
func (n *Names) Name(ctx context.Context, dst []byte, it Item) (name []byte, ok bool, err error) {
	if it.UUID != "" {
		return append(dst, it.UUID...), true, nil
	}
	if it.Kind != "image" || it.Data == "" || len(n.models) == 0 {
		return dst, false, nil
	}
	way := int(n.way.Load())
	if way == unknown || n.asked.Add(1)%again == 0 {
		way = unknown
	}
	digests, ok, err := hashImage(ctx, it.Data, way, n.models)
	if !ok || err != nil {
		return dst, false, err
	}
	at := 0
	if way == unknown {
		at = n.recognise(digests)
	}
	return hex.AppendEncode(dst, digests[at][:]), true, nil
}

// recognise returns the hashing variant, an index into digests, whose digest an engine has
// announced.
func (n *Names) recognise(digests [][digestSize]byte) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := int(n.way.Load())
	for i, d := range digests {
		if _, ok := n.announced[d]; ok && i != now {
			if now != unknown {
				if _, ok := n.announced[digests[now]]; ok {
					break // engines of two kinds
				}
			}
			n.way.Store(int32(i))
			now = i
			break
		}
	}
	return max(now, 0)
}

// Status describes in human-readable form how images are named.
func (n *Names) Status() string {
	switch way := n.way.Load(); {
	case way != unknown:
		form, model := formOf(int(way), len(n.models))
		return "images by uuid or content (as " + form.String() + " hashes it, model " + n.models[model] + ": seen in its events)"
	case n.announcements.Load() > 0:
		return "images by uuid; by content as " + framed.String() + " hashes it, which no event has confirmed yet"
	}
	return "images by uuid or content, no event has told of one yet"
}
