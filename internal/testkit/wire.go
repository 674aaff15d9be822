package testkit

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var writeWire = flag.Bool("wire.update", false, "write the wire fixtures of the next release")

// nextRelease names the fixtures of formats that have changed since the newest release.
const nextRelease = "next"

// WireMessage is a message of a wire format: an example as this version encodes it, and the decoder.
type WireMessage struct {
	Name    string
	Encoded []byte
	Decode  func([]byte) (any, error)
}

// WireFixtures checks the package's fixtures in testdata/wire, a file per release in CHANGELOG.md. Each
// message of each release decodes to the recorded content; fields that later releases added are zero.
// The newest file has all messages, byte for byte. After a change of a format, -wire.update writes
// next.txt, which the next release renames. Never change the file of a published release.
func WireFixtures(t *testing.T, messages ...WireMessage) {
	t.Helper()
	releases := changelogReleases(t)
	if *writeWire {
		release := nextRelease
		if _, err := os.Stat(fixtureFile(releases[0])); err != nil {
			release = releases[0]
		}
		writeFixtures(t, release, messages)
	}
	if _, err := os.Stat(fixtureFile(nextRelease)); err == nil {
		releases = append([]string{nextRelease}, releases...)
	}
	for i, release := range releases {
		b, err := os.ReadFile(fixtureFile(release))
		if err != nil {
			t.Errorf("release %s of CHANGELOG.md has no wire fixtures: %v; run the test with -wire.update", release, err)
			continue
		}
		seen := map[string]bool{}
		for line := range strings.Lines(string(b)) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			frame, content, _ := strings.Cut(rest, " ")
			at := slices.IndexFunc(messages, func(m WireMessage) bool { return m.Name == name })
			if at < 0 {
				t.Errorf("release %s sends %s, which has no decoder here", release, name)
				continue
			}
			seen[name] = true
			if err := checkFixture(&messages[at], frame, content, i == 0); err != nil {
				t.Errorf("release %s, %s: %v", release, name, err)
			}
		}
		for _, m := range messages {
			if i == 0 && !seen[m.Name] {
				t.Errorf("release %s has no fixture of %s; run the test with -wire.update", release, m.Name)
			}
		}
	}
}

func checkFixture(m *WireMessage, frame, content string, newest bool) error {
	b, err := hex.DecodeString(frame)
	if err != nil {
		return err
	}
	got, err := wireContent(m, b)
	switch {
	case err != nil:
		return err
	case got != content:
		return fmt.Errorf("decoded to %s, want %s", got, content)
	case newest && string(b) != string(m.Encoded):
		return fmt.Errorf("is encoded as %x, want %s", m.Encoded, frame)
	}
	return nil
}

func wireContent(m *WireMessage, b []byte) (string, error) {
	v, err := m.Decode(slices.Clone(b))
	if err != nil {
		return "", err
	}
	out, err := json.Marshal(plainValue(reflect.ValueOf(v)))
	return string(out), err
}

// plainValue converts a value for JSON. A struct is the list of its values that are not zero, without
// names, so that a field may be renamed. Bytes are in hex.
func plainValue(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return plainValue(v.Elem())
	case reflect.Struct:
		out := []any{}
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				out = append(out, plainValue(f))
			}
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for _, k := range v.MapKeys() {
			out[fmt.Sprint(k)] = plainValue(v.MapIndex(k))
		}
		return out
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b := make([]byte, v.Len())
			for i := range b {
				b[i] = byte(v.Index(i).Uint())
			}
			return hex.EncodeToString(b)
		}
		out := make([]any, v.Len())
		for i := range out {
			out[i] = plainValue(v.Index(i))
		}
		return out
	}
	return fmt.Sprint(v)
}

func fixtureFile(release string) string { return filepath.Join("testdata", "wire", release+".txt") }

func writeFixtures(t *testing.T, release string, messages []WireMessage) {
	t.Helper()
	var out strings.Builder
	for _, m := range messages {
		content, err := wireContent(&m, m.Encoded)
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		fmt.Fprintf(&out, "%s %x %s\n", m.Name, m.Encoded, content)
	}
	if err := os.MkdirAll(filepath.Dir(fixtureFile(release)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fixtureFile(release), []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// changelogReleases returns the releases in CHANGELOG.md, newest first.
func changelogReleases(t *testing.T) (out []string) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the package")
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		release, _, ok := strings.Cut(strings.TrimPrefix(line, "## ["), "]")
		if ok && strings.HasPrefix(line, "## [") && release != "Unreleased" {
			out = append(out, release)
		}
	}
	if len(out) == 0 {
		t.Fatal("CHANGELOG.md has no release")
	}
	return out
}
