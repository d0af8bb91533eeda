// Copyright The lease-coordinator Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// screen prints lines that stay and, on a terminal, keeps a block of lines below them up to date.
type screen struct {
	out *os.File
	// live is set for a terminal that can move its cursor, colour for one whose user does not mind.
	live, colour bool
	begun        time.Time

	mu     sync.Mutex
	pinned []string
	// drawn is how many lines of the block are on the terminal, above the cursor.
	drawn int
}

func newScreen(out *os.File) *screen {
	_, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ)
	live := err == nil && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
	return &screen{out: out, live: live, colour: live && os.Getenv("NO_COLOR") == "", begun: time.Now()}
}

// width is that of the terminal, or what fits everywhere; long lines are hard to read even where they fit.
func (s *screen) width() int {
	const usual, most = 80, 110
	size, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return usual
	}
	return min(int(size.Col), most)
}

// Styles. Nothing is told by a style alone.
const (
	plain  = ""
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

func (s *screen) style(style, text string) string {
	if !s.colour || style == plain {
		return text
	}
	return style + text + reset
}

// margin is the width of the time before each line.
const margin = 7

// say prints a line with the time since the start.
func (s *screen) say(format string, args ...any) { s.sayIn(plain, 0, format, args...) }

// sayIn prints in a style a line that is indented that far.
func (s *screen) sayIn(style string, indent int, format string, args ...any) {
	s.sayAt(time.Now(), style, indent, format, args...)
}

// sayAt prints a line about something that happened at that time.
func (s *screen) sayAt(at time.Time, style string, indent int, format string, args ...any) {
	since := max(at.Sub(s.begun), 0)
	text := fmt.Sprintf(format, args...)
	stamp := fmt.Sprintf("%2d:%02d", int(since.Minutes()), int(since.Seconds())%60)
	s.print(func(w io.Writer) {
		for i, line := range wrap(text, s.width()-margin-indent-1, 2) {
			if i > 0 {
				stamp = ""
			}
			fmt.Fprintf(w, "%-*s%*s%s\n", margin, stamp, indent, "", s.style(style, line))
		}
	})
}

// lines prints lines as they are.
func (s *screen) lines(lines ...string) {
	s.print(func(w io.Writer) {
		for _, line := range lines {
			fmt.Fprintln(w, line)
		}
	})
}

// print lets write print lines that stay above the block.
func (s *screen) print(write func(io.Writer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	s.erase(&b)
	write(&b)
	s.draw(&b)
	_, _ = s.out.Write(b.Bytes())
}

// pin replaces the block. Where there is no terminal it does nothing.
func (s *screen) pin(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live {
		return
	}
	s.pinned = lines
	// One write, or it flickers.
	var b bytes.Buffer
	s.erase(&b)
	s.draw(&b)
	_, _ = s.out.Write(b.Bytes())
}

func (s *screen) erase(b *bytes.Buffer) {
	if s.drawn > 0 {
		// What the terminal echoes, such as ^C, goes too.
		fmt.Fprintf(b, "\r\x1b[%dA\x1b[J", s.drawn)
	}
	s.drawn = 0
}

func (s *screen) draw(b *bytes.Buffer) {
	if !s.live || len(s.pinned) == 0 {
		return
	}
	width := s.width()
	for _, line := range append([]string{""}, s.pinned...) {
		// A line that the terminal wraps would be two when it is erased.
		fmt.Fprintln(b, cut(line, width-1))
	}
	s.drawn = len(s.pinned) + 1
}

// writer prints each line that is written to it.
func (s *screen) writer() io.Writer {
	return &lineWriter{say: func(line string) { s.sayIn(dim, 0, "%s", line) }}
}

type lineWriter struct {
	mu   sync.Mutex
	rest []byte
	say  func(string)
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		line, rest, ok := bytes.Cut(w.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		w.say(string(line))
		w.rest = rest
	}
}

// wrap breaks a text into lines of at most width characters, where it can, all but the first indented.
func wrap(text string, width, indent int) []string {
	var lines []string
	line := ""
	for _, word := range strings.SplitAfter(text, " ") {
		if line != "" && utf8.RuneCountInString(line)+utf8.RuneCountInString(strings.TrimRight(word, " ")) > width {
			lines = append(lines, strings.TrimRight(line, " "))
			line = strings.Repeat(" ", indent)
		}
		line += word
	}
	return append(lines, line)
}

// cut shortens a line to width characters, not counting styles.
func cut(line string, width int) string {
	n := 0
	styled := false
	for i := 0; i < len(line); {
		if line[i] == '\x1b' {
			end := strings.IndexByte(line[i:], 'm')
			if end < 0 {
				return line[:i]
			}
			styled = true
			i += end + 1
			continue
		}
		if n == width {
			if styled {
				return line[:i] + reset
			}
			return line[:i]
		}
		_, size := utf8.DecodeRuneInString(line[i:])
		i += size
		n++
	}
	return line
}
