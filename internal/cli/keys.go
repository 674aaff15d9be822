package cli

import (
	"encoding/base64"
	"fmt"
	"os"
	"strings"
)

// ReadBase64 reads base64 keys, one per line.
func ReadBase64(file string) (keys [][]byte, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Fields(string(b)) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			return nil, fmt.Errorf("%s: not base64: %w", file, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
