package epp

import (
	"github.com/grapevine-epp/grapevine/internal/commands"
	"github.com/grapevine-epp/grapevine/pd"
	"github.com/grapevine-epp/grapevine/picker/plugin"
)

// Option configures [Main].
type Option func(*commands.Program)

// WithPlugins adds plugin types. A type whose name is known replaces the built-in one.
func WithPlugins(types ...plugin.Type) Option {
	return func(p *commands.Program) { p.Plugins = p.Plugins.With(types...) }
}

// WithVersion sets the version that the program prints and reports in its status; the default is "dev".
func WithVersion(version string) Option {
	return func(p *commands.Program) { p.Version = version }
}

// Main runs the command line in os.Args until it ends, or until SIGINT or SIGTERM, and ends the process.
func Main(options ...Option) {
	p := commands.Program{Version: "dev", Plugins: pd.Table()}
	for _, set := range options {
		set(&p)
	}
	commands.Main(p)
}
