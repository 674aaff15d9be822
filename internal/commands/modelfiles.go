package commands

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/grapevine-epp/grapevine/internal/modelfiles"
)

// modelFileFlags are the flags for the files of models that engines serve.
type modelFileFlags struct {
	source, cache string
	revisions     []string
}

func (f *modelFileFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.source, "model-source", string(modelfiles.ModeAuto), "source of the tokenizer files of models without --model: auto (local folders, Hugging Face caches, then downloads from $HF_ENDPOINT), cache (no downloads; also with HF_HUB_OFFLINE=1) or off. Replicas of a group share the files")
	fl.StringVar(&f.cache, "model-cache", "", "folder of downloaded tokenizer files (default: grapevine/models in the user's cache folder)")
	fl.StringArrayVar(&f.revisions, "model-revision", nil, "ORG/NAME=REVISION: branch, tag or commit of a model's tokenizer files (repeatable; default: main)")
}

// modelSpread is the limit of the random pause before a download: replicas of a group start
// together.
const modelSpread = time.Second

// options returns the options that flags and environment define.
func (f *modelFileFlags) options() (modelfiles.Options, error) {
	o := modelfiles.FromEnv(os.Getenv)
	o.Mode, o.Spread = modelfiles.Mode(f.source), modelSpread
	if f.cache != "" {
		o.Cache = f.cache
	}
	var err error
	if o.Revisions, err = modelfiles.ParseRevisions(f.revisions); err != nil {
		return o, fmt.Errorf("--model-revision %w", err)
	}
	switch o.Mode {
	case modelfiles.ModeAuto, modelfiles.ModeCache, modelfiles.ModeOff:
	default:
		return o, fmt.Errorf("--model-source %q: want %s", f.source, strings.Join(modelfiles.Modes(), ", "))
	}
	return o, nil
}
