package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"mcpx/cmd/internal/daemon"
)

// settingFlags collects the settings that were given as flags.
type settingFlags struct {
	file   string
	values map[string][]string
}

// onlyServe are the settings whose flags make sense for the daemon alone.
var onlyServe = []string{"listen", "token-file", "no-auth", "http.hosts", "http.origins", "slots", "queue", "drain"}

func (f *settingFlags) bindCommon(set *pflag.FlagSet) {
	set.StringVar(&f.file, "config", "", "configuration file")
	f.bind(set, func(k daemon.Key) bool { return !servesOnly(k) })
}

func (f *settingFlags) bindServe(set *pflag.FlagSet) { f.bind(set, servesOnly) }

func servesOnly(k daemon.Key) bool {
	for _, name := range onlyServe {
		if k.Name == name {
			return true
		}
	}
	return false
}

func (f *settingFlags) bind(set *pflag.FlagSet, wanted func(daemon.Key) bool) {
	if f.values == nil {
		f.values = map[string][]string{}
	}
	for _, k := range daemon.Keys() {
		if k.Flag == "" || !wanted(k) {
			continue
		}
		flag := set.VarPF(&settingFlag{k, f.values}, k.Flag, "", k.Usage)
		if k.Toggle {
			flag.NoOptDefVal = "true"
		}
	}
}

func (f *settingFlags) given() map[string][]string { return f.values }

// settingFlag is one setting as a flag. Its value is checked with those of the
// other sources.
type settingFlag struct {
	key    daemon.Key
	values map[string][]string
}

func (f *settingFlag) Set(value string) error {
	f.values[f.key.Name] = append(f.values[f.key.Name], value)
	return nil
}

func (f *settingFlag) String() string { return strings.Join(f.values[f.key.Name], ",") }

func (f *settingFlag) Type() string {
	if f.key.Toggle {
		return "bool"
	}
	return "value"
}
