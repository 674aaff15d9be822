package vocab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// Options supplement a vocabulary file. The zero value is right for tokenizer.json.
type Options struct {
	// Added are further added tokens, as listed in tokenizer_config.json. Tokens defined in the
	// vocabulary file take precedence.
	Added []Added
	// Pattern names the split pattern of files that carry none (tiktoken):
	// gpt2, cl100k, o200k, qwen2 or tekken. Empty leaves Encode unavailable.
	Pattern string
	// Prefix overrides where the tokenizer's class inserts a space: first (before a text), always
	// (after each added token too) or never. If empty, the SentencePiece file decides.
	Prefix string
}

// Names of the supported files.
const (
	fileTokenizer   = "tokenizer.json"
	fileTekken      = "tekken.json"
	suffixTiktoken  = ".tiktoken"
	fileTiktokenAlt = "tiktoken.model"
)

// Find returns the vocabulary file in a model directory: the first that exists of tokenizer.json,
// tekken.json and a tiktoken file.
func Find(dir string) (string, error) {
	for _, name := range []string{fileTokenizer, fileTekken, fileTiktokenAlt} {
		if p := filepath.Join(dir, name); isFile(p) {
			return p, nil
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"+suffixTiktoken))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("vocab: no %s, %s or *%s in %s", fileTokenizer, fileTekken, suffixTiktoken, dir)
	}
	return found[0], nil
}

func isFile(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode().IsRegular()
}

// Load reads a vocabulary file. Its name determines the format.
func Load(path string, o Options) (*Vocab, error) {
	defer debug.FreeOSMemory() // loads are rare and their garbage is large
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	var v *Vocab
	switch base := filepath.Base(path); {
	case strings.HasSuffix(base, suffixTiktoken), base == fileTiktokenAlt:
		v, err = ParseTiktoken(data, o)
	case base == fileTekken:
		v, err = ParseTekken(data, o)
	default:
		v, err = ParseJSON(data, o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxFileBytes {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrTooLarge, path, maxFileBytes)
	}
	data := make([]byte, st.Size()) // exact size, to avoid growth by doubling
	_, err = io.ReadFull(f, data)
	return data, err
}

// addMissing registers the options' added tokens that the file does not
// define itself.
func (b *builder) addMissing(added []Added) error {
	have := make(map[uint32]bool, len(b.added))
	for _, a := range b.added {
		have[a.ID] = true
	}
	for _, a := range added {
		if have[a.ID] {
			continue
		}
		if err := b.add(a, []byte(a.Content)); err != nil {
			return err
		}
	}
	return nil
}
