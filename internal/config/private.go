// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"syscall"

	"github.com/isthmus-net/isthmus/teredo"
)

// maxSecret bounds a file that holds one secret, in bytes.
const maxSecret = 4096

// ReadKeys reads a file of keys: a [[key]] table for each. Only its owner, who
// is root or the user of this process, and the members of its group may read it.
func ReadKeys(path string) ([]Key, error) {
	text, err := readPrivate(path, maxSize)
	if err != nil {
		return nil, err
	}
	c := &checker{file: path, doc: locate(text), schema: reflect.TypeFor[rawKeys](), failed: map[string]bool{}}
	c.spelling()
	var raw rawKeys
	if c.decode(text, &raw) {
		keys := c.keys("key", raw.Key)
		if len(c.errs) == 0 {
			return keys, nil
		}
	}
	return nil, c.errs.inOrder()
}

// ReadSecret reads a file that holds one secret and, it may be, a line end. The
// file must be as private as that of [ReadKeys].
func ReadSecret(path string) (Secret, error) {
	text, err := readPrivate(path, maxSecret)
	if err != nil {
		return "", err
	}
	s, f := secret(strings.TrimRight(string(text), "\r\n"))
	if f != nil {
		return "", fmt.Errorf("%s: %s: %s", path, f.Problem, f.Remedy)
	}
	return s, nil
}

// readPrivate reads a whole file that strangers may not read.
func readPrivate(path string, limit int64) ([]byte, error) {
	// Without O_NONBLOCK a pipe would wait for its other end.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %s: make it (chmod 640), or name the right one", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("this user may not read %s: give the file to the user or the group of isthmus", path)
	case err != nil:
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil {
		err = CheckPrivate(path, info)
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes: name the right file", path, limit)
	}
	return text, nil
}

// CheckPrivate returns why a file must not hold secrets: it is no file, others
// than owner and group may read it, the group may write it, or it belongs to
// another user.
func CheckPrivate(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file: name the right one", path)
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return fmt.Errorf("%s holds secrets, but its permissions %04o open it to others: run chmod 640 %s, or 600", path, mode, path)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s holds secrets, but belongs to another user: run chown root %s", path, path)
	}
	return nil
}

// Credential returns what the client authenticates itself with, reading the
// file of its secret; an empty identifier is nothing.
func (c *Client) Credential() (teredo.Credential, error) {
	if c.KeyID == "" {
		return teredo.Credential{}, nil
	}
	s := c.KeySecret
	if c.KeySecretFile != "" {
		var err error
		if s, err = ReadSecret(c.KeySecretFile); err != nil {
			return teredo.Credential{}, err
		}
	}
	return teredo.Credential{ID: c.KeyID, Secret: []byte(s), Algorithm: c.KeyAlgorithm}, nil
}

// AllKeys returns the keys of the server, those of its file included.
func (s *Server) AllKeys() ([]Key, error) {
	if s.KeysFile == "" {
		return s.Keys, nil
	}
	more, err := ReadKeys(s.KeysFile)
	if err != nil {
		return nil, err
	}
	return append(s.Keys[:len(s.Keys):len(s.Keys)], more...), nil
}
