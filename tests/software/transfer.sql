\set n :n + 1
\set one random(1, 1000)
\set other random(1, 1000)
\set source least(:one, :other)
\set target greatest(:one, :other)
\set amount random(1, 50)
BEGIN;
UPDATE account SET balance = balance - :amount WHERE id = :source;
UPDATE account SET balance = balance + :amount WHERE id = :target;
INSERT INTO moved VALUES (:round, :client_id, :n, :source, :target, :amount);
END;
