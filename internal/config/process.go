// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import "github.com/isthmus-net/isthmus/internal/config/key"

// single is a section of which there is one, for all instances.
type single struct {
	name  string
	keys  []key.Key
	check func(*Checker)
}

// singles are those sections, bound to c.
func (c *Config) singles() []single {
	none := func(*Checker) {}
	return []single{
		{announceSection, c.Announce.keys(), c.Announce.check},
		{"control", c.Control.keys(), none},
		{"metrics", c.Metrics.keys(), none},
		{"log", c.Log.keys(), none},
	}
}

// Default returns the configuration of an empty file: no instance.
func Default() (c Config) {
	for _, s := range c.singles() {
		key.SetDefaults(s.keys)
	}
	return c
}

func (c *Control) keys() []key.Key {
	return []key.Key{
		key.Of("socket", &c.Socket, "/run/isthmus/control.sock", optional(socketPath), key.Restart, "Path of the Unix socket. Empty: none."),
		key.Of("mode", &c.Mode, 0o660, permissions, key.Restart, "Permission bits: who may read. Only root and the user who runs isthmus may change anything."),
		key.Of("group", &c.Group, "", optional(groupName), key.Restart, "Group that owns the socket. Empty: that of the process."),
	}
}

func (m *Metrics) keys() []key.Key {
	return []key.Key{
		key.Of("listen", &m.Listen, "", optional(listen), key.Restart, `Address and port, like "127.0.0.1:9464". Empty: none.`),
	}
}

func (l *Log) keys() []key.Key {
	return []key.Key{
		key.Of("level", &l.Level, "info", logLevel, key.Live, `"debug", "info", "warn" or "error".`),
		key.Of("format", &l.Format, string(FormatText), oneOf(FormatText, FormatJSON), key.Restart, `"text" or "json".`),
	}
}

// Reload returns what a reload from running to next makes of a section, and the keys that
// wait for a restart.
func Reload[T any, P interface {
	*T
	keys() []key.Key
}](running, next T) (merged T, needsRestart []string) {
	needsRestart = key.Merge(P(&merged).keys(), P(&running).keys(), P(&next).keys())
	return merged, needsRestart
}
