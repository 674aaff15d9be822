package modelfiles

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Limits of names.
const (
	maxRepo     = 96 // bytes of "org/name", as on the Hub
	maxRevision = 128
)

// ValidRepo reports whether name is a plain repository name: org/name, each part of letters,
// digits, '-', '_' and '.', without "--", "..", and a leading or trailing '-' or '.'.
func ValidRepo(name string) bool {
	org, repo, ok := strings.Cut(name, "/")
	return ok && len(name) <= maxRepo && validPart(org) && validPart(repo) && !strings.HasSuffix(repo, ".git")
}

func validPart(s string) bool {
	if s == "" || strings.Contains(s, "--") || strings.Contains(s, "..") || strings.Trim(s, "-.") != s {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !isWord(r) && r != '-' && r != '.' })
}

func isWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}

// ValidRevision reports whether rev may name a branch, a tag or a commit: parts of letters, digits,
// '-', '_' and '.', separated by slashes. No part starts with a dot.
func ValidRevision(rev string) bool {
	if len(rev) > maxRevision {
		return false
	}
	for part := range strings.SplitSeq(rev, "/") {
		if part == "" || part[0] == '.' || strings.Contains(part, "..") ||
			strings.ContainsFunc(part, func(r rune) bool { return !isWord(r) && r != '-' && r != '.' }) {
			return false
		}
	}
	return true
}

// isCommit reports whether s is a full commit hash.
func isCommit(s string) bool { return len(s) == 40 && isHex(s) }

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

// isFolder reports whether root is an absolute path without detours.
func isFolder(root string) bool { return filepath.IsAbs(root) && filepath.Clean(root) == root }

// ParseRevisions parses MODEL=REVISION pairs.
func ParseRevisions(pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range pairs {
		model, rev, ok := strings.Cut(p, "=")
		if !ok || !ValidRepo(model) || !ValidRevision(rev) {
			return nil, fmt.Errorf("%q: want ORG/NAME=REVISION", p)
		}
		out[model] = rev
	}
	return out, nil
}

// fileNames are the files of a repository that are read. No pattern matches weights.
var fileNames = []string{
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json",
	"config.json", "generation_config.json", "tekken.json", "tiktoken.model",
}

const (
	suffixRanks     = ".tiktoken"
	folderTemplates = "additional_chat_templates"
	suffixTemplate  = ".jinja"
)

// wantedFile reports whether a repository's file is one that is read. Accepted names are safe as
// relative paths.
func wantedFile(name string) bool {
	if slices.Contains(fileNames, name) {
		return true
	}
	if dir, base, ok := strings.Cut(name, "/"); ok {
		return dir == folderTemplates && strings.HasSuffix(base, suffixTemplate) && validPart(base)
	}
	return strings.HasSuffix(name, suffixRanks) && validPart(name)
}

// isVocabulary reports whether a file holds a vocabulary.
func isVocabulary(name string) bool {
	return name == "tokenizer.json" || name == "tekken.json" || name == "tiktoken.model" || strings.HasSuffix(name, suffixRanks)
}
