// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/role"
)

// ConfigFlag names the configuration file.
type ConfigFlag struct {
	Config *string `short:"c" placeholder:"FILE" help:"Configuration file (${config})."`
}

// file is the path of the configuration.
func (f ConfigFlag) file() string {
	if f.Config == nil {
		return config.DefaultPath
	}
	return *f.Config
}

// load reads and checks the file.
func (f ConfigFlag) load() (*config.Config, error) {
	path := f.file()
	if path == "" {
		return nil, role.UsageError{Err: fmt.Errorf("-c names no file: write one behind it, or leave -c out for %s", config.DefaultPath)}
	}
	// A named pipe without a writer would be waited for otherwise.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no configuration %s: make one with isthmus init NAME -o %s (isthmus init --help lists the names), or name another with -c", path, path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("this user may not read the configuration %s: use sudo, or name another with -c", path)
	case errors.Is(err, unix.ENXIO):
		return nil, fmt.Errorf("%s is a socket or a device without driver: name a file with -c", path)
	case err != nil:
		return nil, fmt.Errorf("cannot open the configuration: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("%s is a folder: name a file in it with -c", path)
	}
	text := bufio.NewReader(file)
	if _, err := text.Peek(1); err == io.EOF && info.Mode().Type() == fs.ModeNamedPipe {
		return nil, fmt.Errorf("%s is a pipe that no one writes to: name a file with -c", path)
	}
	settings, err := roles.Parse(text, path)
	if err != nil || !settings.HasSecrets() || !info.Mode().IsRegular() {
		return settings, err
	}
	return settings, config.CheckPrivate(path, info)
}
