package prompt

import (
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/grapevine-epp/grapevine/internal/prompt/folder"
)

// modelFiles match the files of a model's folder that Load may read.
var modelFiles = []string{"*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt", folder.DirTemplates + "/*.jinja"}

// contentSum returns a checksum of the files that Load would read, or 0 if a file cannot be read or
// there are no files.
func contentSum(c Config) uint64 {
	paths := []string{}
	if c.Options.Template != "" {
		paths = append(paths, c.Options.Template)
	}
	for _, pattern := range modelFiles {
		found, err := filepath.Glob(filepath.Join(c.Path, pattern))
		if err != nil {
			return 0
		}
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		return 0
	}
	h := xxhash.New()
	for _, p := range paths {
		_, _ = h.WriteString("\x00" + p + "\x00")
		if addFile(h, p) != nil {
			return 0
		}
	}
	return h.Sum64()
}

func addFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// fingerprint is computed on first use.
type fingerprint struct {
	once sync.Once
	sum  uint64
}

// Fingerprint returns a hash of the bytes of all the model's tokens: two models with equal
// fingerprints give an engine's blocks equal keys. The first call takes some milliseconds.
func (m *Model) Fingerprint() uint64 {
	m.print.once.Do(func() {
		h := xxhash.New()
		_, _ = h.WriteString(m.Name() + "\x00")
		var token []byte
		for id := range uint32(m.Vocab().Size()) {
			token, _ = m.AppendToken(token[:0], id)
			token = append(token, byte(len(token)), byte(len(token)>>8))
			_, _ = h.Write(token)
		}
		m.print.sum = h.Sum64()
	})
	return m.print.sum
}
