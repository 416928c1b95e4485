// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// record is what outlives the process: the Persisted UPnP-Mapped Port of RFC
// 6081 section 5.3.1, and where it was reserved. The zero value is none.
type record struct {
	Method  Method     `json:"method"`
	Gateway netip.Addr `json:"gateway"`
	Port    uint16     `json:"port"`
}

// maxRecord bounds the file, in bytes.
const maxRecord = 4096

// load reads the record; no file is no record.
func load(path string) (r record, err error) {
	if path == "" {
		return r, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("cannot read which port was reserved before: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return record{}, fmt.Errorf("the file %s with the port reserved before is damaged, so it is not given back: %w", path, err)
	}
	return r, nil
}

// store replaces the record; the zero one takes the file away.
func (r record) store(path string) error {
	if path == "" {
		return nil
	}
	if r == (record{}) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot forget the reserved port: %w", err)
		}
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A new file is put in the place of the old one, so that none is ever half
	// written.
	file, err := os.CreateTemp(filepath.Dir(path), ".port-mapping-*")
	if err != nil {
		return fmt.Errorf("cannot remember the reserved port: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return fmt.Errorf("cannot remember the reserved port: %w", err)
	}
	return nil
}
