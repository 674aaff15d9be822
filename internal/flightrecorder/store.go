package flightrecorder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Record is a stored record.
type Record struct {
	Name    string    `json:"name"`
	At      time.Time `json:"at"`
	Trigger string    `json:"trigger,omitempty"`
	Detail  string    `json:"detail,omitempty"`
	Bytes   int64     `json:"bytes"`

	content []byte // nil if it is in a file
}

// Parts of records' names.
const (
	prefix = "grapevine-flight-"
	suffix = ".tar.gz"
)

// errSize is returned for a record that is larger than the store.
var errSize = errors.New("record is larger than the limit of stored records")

// store keeps the newest records within limits.
type store struct {
	dir   string // "": in memory
	count int
	bytes int64

	mu   sync.Mutex
	list []Record // oldest first
	used int64
}

// openStore returns a store with the records that the folder has from before.
func openStore(dir string, count int, most int64) (*store, error) {
	s := &store{dir: dir, count: count, bytes: most}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir) // sorted by name, and thereby by time
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !IsName(e.Name()) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			s.list = append(s.list, Record{Name: e.Name(), At: info.ModTime(), Trigger: triggerOf(e.Name()), Bytes: info.Size()})
			s.used += info.Size()
		}
	}
	s.remove(s.shrink(0))
	return s, nil
}

// IsName reports whether a file has the name of a record.
func IsName(file string) bool {
	return strings.HasPrefix(file, prefix) && strings.HasSuffix(file, suffix)
}

// triggerOf returns the trigger in a record's name, or "".
func triggerOf(name string) string {
	for _, t := range triggerNames {
		if strings.Contains(name, "-"+t+"-") {
			return t
		}
	}
	return ""
}

// add stores a record, and returns how many older ones it removed.
func (s *store) add(rec Record) (removed int, err error) {
	if rec.Bytes > s.bytes {
		return 0, errSize
	}
	s.mu.Lock()
	old := s.shrink(rec.Bytes)
	s.mu.Unlock()
	s.remove(old)
	if s.dir != "" { // only one record is made at a time
		if err := write(filepath.Join(s.dir, rec.Name), rec.content); err != nil {
			return len(old), err
		}
		rec.content = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, rec)
	s.used += rec.Bytes
	return len(old), nil
}

// write writes a file so that it is complete under its name or does not exist.
func write(path string, content []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o600); err != nil {
		return errors.Join(err, remove(part))
	}
	return os.Rename(part, path)
}

// remove removes a file that may not exist.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// shrink takes the oldest records off the list until there is room for one more of that size, and
// returns them. A caller that shares s holds its lock.
func (s *store) shrink(room int64) []Record {
	n := 0
	for ; n < len(s.list) && (len(s.list)-n >= s.count || s.used+room > s.bytes); n++ {
		s.used -= s.list[n].Bytes
	}
	old := slices.Clone(s.list[:n])
	s.list = slices.Delete(s.list, 0, n)
	return old
}

// remove removes the files of records that are no longer listed.
func (s *store) remove(old []Record) {
	for _, r := range old {
		if s.dir != "" {
			_ = remove(filepath.Join(s.dir, r.Name)) // the next start finds it again
		}
	}
}

// records lists the stored records, the newest first.
func (s *store) records() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.list)
	slices.Reverse(list)
	if list == nil {
		list = []Record{}
	}
	return list
}

// read returns the content of a stored record.
func (s *store) read(name string) ([]byte, bool) {
	s.mu.Lock()
	at := slices.IndexFunc(s.list, func(r Record) bool { return r.Name == name })
	var content []byte
	if at >= 0 {
		content = s.list[at].content
	}
	s.mu.Unlock()
	if at >= 0 && s.dir != "" {
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		return b, err == nil
	}
	return content, at >= 0
}
