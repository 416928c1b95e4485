// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// asStopping makes the test binary a program that was told to stop, and takes forever.
const asStopping = "stopping"

func neverStops() {
	ctx, _ := untilSignal(context.Background(), append(endSignals(), syscall.SIGUSR2)...)
	fmt.Println("started")
	<-ctx.Done()
	select {}
}

// asAbandoned makes it one that stops since no one reads its output.
const asAbandoned = "abandoned"

func abandoned() {
	readers, gone := context.WithCancel(context.Background())
	ctx, _ := untilSignal(readers, endSignals()...)
	gone()
	<-ctx.Done()
	fmt.Println("started")
	select {}
}

// TestSecondSignalEnds sends two signals, the second before the first can have been
// dealt with: it ends a program that is not through with stopping.
func TestSecondSignalEnds(t *testing.T) {
	for i := range 20 {
		pair := [][]syscall.Signal{{syscall.SIGTERM, syscall.SIGINT}, {syscall.SIGTERM, syscall.SIGUSR2}, {syscall.SIGUSR2, syscall.SIGTERM}}[i%3]
		cmd := startAs(t, asStopping)
		for _, s := range pair {
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		endsBySignal(t, cmd)
	}
}

// TestSignalEndsAnAbandoned has the first signal end a program that is not through with stopping for another reason.
func TestSignalEndsAnAbandoned(t *testing.T) {
	cmd := startAs(t, asAbandoned)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	endsBySignal(t, cmd)
}

// startAs starts the test binary as a program, and waits until it says so.
func startAs(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), program.As(name))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func endsBySignal(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) || !ended.Sys().(syscall.WaitStatus).Signaled() {
		t.Fatalf("ended with %v, want by a signal", err)
	}
}
