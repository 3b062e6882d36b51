-- Whether a queue keeps live messages or dead letters.
SELECT EXISTS (SELECT FROM {q}) OR EXISTS (SELECT FROM {w}) OR EXISTS (SELECT FROM {d})
