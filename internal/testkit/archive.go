package testkit

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"path"
	"testing"
)

// Unpack returns the files of a .tar.gz archive by base name.
func Unpack(tb testing.TB, archive []byte) map[string]string {
	tb.Helper()
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		tb.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			tb.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			tb.Fatal(err)
		}
		files[path.Base(h.Name)] = string(content)
	}
}
