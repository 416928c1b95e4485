// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"

	"github.com/isthmus-net/isthmus/internal/config"
)

// logHandler writes log lines; the journal adds the time itself.
func logHandler(w io.Writer, format config.Format, level slog.Leveler) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	if journal(w) {
		options.ReplaceAttr = withoutTime
	}
	if format == config.FormatJSON {
		return slog.NewJSONHandler(w, options)
	}
	return slog.NewTextHandler(w, options)
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// journal reports whether w is the stream that systemd made for this process: the
// variable alone is inherited by programs whose output goes elsewhere
// (systemd.exec(5), JOURNAL_STREAM).
func journal(w io.Writer) bool {
	given := os.Getenv("JOURNAL_STREAM")
	file, ok := w.(*os.File)
	if given == "" || !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && given == stream(info)
}

// stream names a file as JOURNAL_STREAM does, by device and inode.
func stream(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}
